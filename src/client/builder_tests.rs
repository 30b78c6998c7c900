use super::*;
use crate::client::settings::Settings;
use crate::protocol::{Drift, MAX_NODES, Ttl};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn one() -> Builder {
    Redlock::builder().nodes(["redis://127.0.0.1:1"])
}

fn refused(builder: Builder) -> ConfigError {
    builder.build().expect_err("must be refused")
}

#[test]
fn defaults_are_as_documented() {
    let settings = Settings::new(&Config::default(), Box::default()).expect("good settings");
    let Settings { lock, limits, prefix, connect_timeout, .. } = settings;
    assert_eq!((lock.ttl, lock.wait), (ms(10_000), Some(ms(10_000))));
    assert_eq!(format!("{:?}", lock.retry), "jittered 50ms..250ms");
    assert_eq!((lock.is_fenced, lock.auto_extend, lock.metadata), (false, None, None));
    assert_eq!((limits.max_ttl, limits.node_timeout), (ms(60_000), ms(50)));
    assert_eq!((limits.drift, connect_timeout), (Drift::DEFAULT, ms(1_000)));
    assert!(prefix.is_empty());
    assert_eq!(RestartGuard::default(), RestartGuard::Observed);
}

#[test]
fn counters_outlive_the_longest_lease() {
    let hours = Duration::from_hours;
    for (token_ttl, max_ttl, used) in [
        (None, hours(1), Some(hours(24))),
        (None, hours(48), Some(hours(48))),
        (Some(hours(2)), hours(2), Some(hours(2))),
        (Some(hours(2)), hours(3), None),
    ] {
        let mut builder = one().max_ttl(max_ttl);
        if let Some(token_ttl) = token_ttl {
            builder = builder.token_ttl(token_ttl);
        }
        let settings = Settings::new(&builder.config, Box::default());
        let checked = settings.map(|settings| settings.token_ttl.as_duration());
        assert_eq!(checked.clone().ok(), used);
        assert_eq!(builder.build().err(), checked.err());
    }
}

#[test]
fn missing_excess_and_duplicate_nodes_are_refused() {
    assert_eq!(refused(Redlock::builder()), ConfigError::NoNodes);
    let urls = |count: u16| (1..=count).map(|port| format!("redis://127.0.0.1:{port}"));
    let most = MAX_NODES;
    let too_many = refused(Redlock::builder().nodes(urls(32)));
    assert_eq!(too_many, ConfigError::TooManyNodes { given: 32, most });
    assert!(Redlock::builder().nodes(urls(31)).build().is_ok());
    for twin in ["redis://127.0.0.1:1/3", "redis://user:secret@127.0.0.1:1"] {
        let same = refused(one().nodes([twin]));
        assert_eq!(same, ConfigError::SameNode { name: "127.0.0.1:1".into() });
    }
    let same =
        refused(Redlock::builder().nodes(["redis://Example.org", "redis://example.org.:6379"]));
    assert_eq!(same, ConfigError::SameNode { name: "example.org:6379".into() });
    let same = refused(Redlock::builder().nodes(["unix:///tmp/a", "redis+unix:///tmp/a"]));
    assert_eq!(same, ConfigError::SameNode { name: "/tmp/a".into() });
}

#[test]
fn invalid_url_error_hides_the_password() {
    for bad in ["http://me:se@cret@example.org", "", "redis://", "redis://h:port", "me:se@cret@x"] {
        let error = refused(one().nodes([bad]));
        assert!(matches!(&error, ConfigError::BadUrl { position: 2, .. }), "{bad}: {error:?}");
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("se@") && !shown.contains("cret"), "{shown}");
    }
}

#[test]
fn builder_debug_hides_the_password() {
    let builder = Redlock::builder().nodes(["redis://me:topsecret@127.0.0.1:1"]);
    assert!(!format!("{builder:?}").contains("topsecret"));
    let client = builder.build().expect("good settings");
    assert!(!format!("{client:?}").contains("topsecret"));
}

#[cfg(not(feature = "tls-rustls"))]
#[test]
fn tls_without_the_feature_names_the_feature() {
    let error = refused(one().nodes(["rediss://me:secret@example.org"]));
    assert_eq!(error, ConfigError::TlsNotEnabled { position: 2 });
}

#[cfg(feature = "tls-rustls")]
#[test]
fn tls_with_the_feature_is_accepted() {
    assert!(one().nodes(["rediss://example.org"]).build().is_ok());
}

#[test]
fn timings_that_cannot_work_are_refused_by_name() {
    for ttl in [Duration::ZERO, Duration::from_micros(999), ms(u64::MAX), Duration::MAX] {
        assert_eq!(refused(one().ttl(ttl)), ConfigError::BadTtl { setting: "ttl", ttl });
    }
    for max_ttl in [Duration::ZERO, ms(Ttl::MAX_MS + 1)] {
        let bad = ConfigError::BadTtl { setting: "max_ttl", ttl: max_ttl };
        assert_eq!(refused(one().max_ttl(max_ttl)), bad);
    }
    let beyond = ConfigError::TtlExceedsMax { ttl: ms(60_001), max_ttl: ms(60_000) };
    assert_eq!(refused(one().ttl(ms(60_001))), beyond);
    assert!(beyond.to_string().ends_with("first increase max_ttl() on all clients of these nodes"));
    assert!(one().ttl(ms(60_000)).build().is_ok());
    assert!(one().ttl(ms(60_001)).max_ttl(ms(60_001)).build().is_ok());
    for factor in [-0.1, 1.0, f64::INFINITY] {
        assert_eq!(refused(one().drift_factor(factor)), ConfigError::BadDriftFactor { factor });
    }
    assert!(matches!(refused(one().drift_factor(f64::NAN)), ConfigError::BadDriftFactor { .. }));
    let drift = Duration::from_micros(2_010);
    assert_eq!(refused(one().ttl(ms(1))), ConfigError::DriftExceedsTtl { ttl: ms(1), drift });
    let too_slow = refused(one().ttl(ms(50)));
    let validity = Duration::from_micros(47_500);
    let (node_timeout, ttl) = (ms(50), ms(50));
    assert_eq!(too_slow, ConfigError::NodeTimeoutExceedsValidity { node_timeout, ttl, validity });
    assert!(one().ttl(ms(50)).node_timeout(ms(47)).build().is_ok());
    let zero = ConfigError::ZeroTimeout { setting: "node_timeout" };
    assert_eq!(refused(one().node_timeout(Duration::ZERO)), zero);
    let zero = ConfigError::ZeroTimeout { setting: "connect_timeout" };
    assert_eq!(refused(one().connect_timeout(Duration::ZERO)), zero);
}

#[test]
fn extreme_settings_do_not_panic() {
    let extreme = one()
        .ttl(ms(Ttl::MAX_MS))
        .max_ttl(ms(Ttl::MAX_MS))
        .wait(Duration::MAX)
        .connect_timeout(Duration::MAX)
        .drift_factor(0.999_999)
        .drift_constant(Duration::ZERO)
        .retry(RetryPolicy::fixed(Duration::MAX));
    assert!(extreme.build().is_ok());
}
