use super::*;
use crate::client::{Builder, Redlock};
use crate::error::ConfigError;

const NODES: [&str; 2] = ["redis://me:topsecret@10.0.0.1", "redis://me:topsecret@10.0.0.2:7/3"];

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Returns a configuration in which every setting differs from its default.
fn full() -> Config {
    Config {
        ttl: Some(ms(5_000)),
        max_ttl: Some(ms(90_000)),
        restart_guard: Some(RestartGuard::Strict),
        trust_persistence: Some(true),
        wait: Some(ms(7_000)),
        node_timeout: Some(ms(250)),
        connect_timeout: Some(ms(3_000)),
        drift_factor: Some(0.02),
        drift_constant: Some(ms(4)),
        retry: Some(RetryPolicy::fixed(ms(100)).limit(3)),
        key_prefix: Some("app:".to_owned()),
        metadata: Some("worker".to_owned()),
        owner: None,
        fenced: Some(true),
        token_ttl: Some(Duration::from_hours(48)),
        ..Config::new(NODES)
    }
}

fn built() -> Builder {
    let builder = Redlock::builder().nodes(NODES).ttl(ms(5_000)).max_ttl(ms(90_000));
    let builder = builder.restart_guard(RestartGuard::Strict).trust_persistence(true);
    let builder = builder.wait(ms(7_000)).node_timeout(ms(250)).connect_timeout(ms(3_000));
    let builder = builder.drift_factor(0.02).drift_constant(ms(4));
    let builder = builder.retry(RetryPolicy::fixed(ms(100)).limit(3)).key_prefix("app:");
    builder.metadata("worker").fenced().token_ttl(Duration::from_hours(48))
}

#[test]
fn each_setting_reaches_the_builder() {
    assert_eq!(format!("{:?}", Builder::from_config(full())), format!("{:?}", built()));
    let defaults = Builder::from_config(Config::new(NODES));
    let expected = Redlock::builder().nodes(NODES);
    assert_eq!(format!("{defaults:?}"), format!("{expected:?}"));
    let off = Config { owner: Some(false), fenced: Some(false), ..Config::new(NODES) };
    let off = Builder::from_config(off).build().expect("good settings");
    assert_eq!(
        (off.inner.settings.lock.metadata.clone(), off.inner.settings.lock.is_fenced),
        (None, false)
    );
    let owned = Config { owner: Some(true), ..Config::new(NODES) };
    let expected = expected.owner();
    assert_eq!(format!("{:?}", Builder::from_config(owned)), format!("{expected:?}"));
}

#[cfg(feature = "tls-rustls")]
#[test]
fn tls_files_reach_the_builder() {
    let config = Config {
        tls_ca_cert_file: Some("/ca.pem".into()),
        tls_cert_file: Some("/cert.pem".into()),
        tls_key_file: Some("/key.pem".into()),
        ..Config::new(NODES)
    };
    #[cfg(feature = "serde")]
    {
        let json = r#"{"nodes": [], "tls_ca_cert_file": "/ca.pem", "tls_cert_file": "/cert.pem",
                       "tls_key_file": "/key.pem"}"#;
        let mut read: Config = serde_json::from_str(json).expect("a good file");
        read.nodes.clone_from(&config.nodes);
        assert_eq!(format!("{read:?}"), format!("{config:?}"));
    }
    let built = Redlock::builder().nodes(NODES).tls_ca_cert_file("/ca.pem");
    let built = built.tls_cert_file("/cert.pem").tls_key_file("/key.pem");
    assert_eq!(format!("{:?}", Builder::from_config(config)), format!("{built:?}"));
}

#[test]
fn build_rejects_settings_that_cannot_work() {
    for (config, fault) in [
        (Config::default(), ConfigError::NoNodes),
        (
            Config { owner: Some(true), metadata: Some("m".to_owned()), ..Config::new(NODES) },
            ConfigError::OwnerAndMetadata,
        ),
        (
            Config { ttl: Some(ms(60_001)), ..Config::new(NODES) },
            ConfigError::TtlExceedsMax { ttl: ms(60_001), max_ttl: ms(60_000) },
        ),
    ] {
        let shown = format!("{config:?}");
        assert_eq!(Builder::from_config(config).build().expect_err(&shown), fault);
    }
    let later = Builder::from_config(full()).ttl(ms(6_000)).nodes(["redis://10.0.0.3"]);
    let later = later.build().expect("good settings");
    assert_eq!(later.inner.settings.lock.ttl, ms(6_000));
    assert_eq!(later.nodes().len(), 3);
}

#[test]
fn debug_output_hides_passwords() {
    let mut config = full();
    config.nodes.push("redis://me:topsecret".to_owned() + "@host:port");
    config.nodes.push("redis://me:top#secret@host".to_owned());
    config.nodes.push("redis://me:1@top@secret".to_owned());
    let shown = format!("{config:?}");
    assert!(shown.contains("\"10.0.0.1:6379\"") && shown.contains("invalid URL"), "{shown}");
    assert!(!shown.contains("secret") && !shown.contains("top"), "{shown}");
    assert!(shown.contains("retry: Some(fixed 100ms, at most 3 retries)"), "{shown}");
}

#[cfg(feature = "serde")]
mod files {
    use super::*;

    const TOML: &str = r#"
        nodes = ["redis://me:topsecret@10.0.0.1", "redis://me:topsecret@10.0.0.2:7/3"]
        ttl = "5s"
        max_ttl = "1m 30s"
        restart_guard = "strict"
        trust_persistence = true
        wait = "7s"
        node_timeout = "250ms"
        connect_timeout = "3s"
        drift_factor = 0.02
        drift_constant = "4ms"
        retry = "fixed 100ms, limit 3"
        key_prefix = "app:"
        metadata = "worker"
        fenced = true
        token_ttl = "2days"
    "#;

    const JSON: &str = r#"{
        "nodes": "redis://me:topsecret@10.0.0.1, redis://me:topsecret@10.0.0.2:7/3",
        "ttl": "5s", "max_ttl": "1m 30s", "restart_guard": "strict", "trust_persistence": true,
        "wait": "7s", "node_timeout": "250ms", "connect_timeout": "3s", "drift_factor": 0.02,
        "drift_constant": "4ms", "retry": "fixed 100ms, limit 3", "key_prefix": "app:",
        "metadata": "worker", "owner": null, "fenced": true, "token_ttl": "48h"
    }"#;

    fn refused(toml: &str) -> String {
        let text = format!("nodes = [\"redis://10.0.0.1\"]\n{toml}");
        toml::from_str::<Config>(&text).expect_err(toml).message().to_owned()
    }

    #[test]
    fn file_can_set_every_field() {
        let expected = format!("{:?}", full());
        let toml: Config = toml::from_str(TOML).expect("a good file");
        assert_eq!(
            (format!("{toml:?}"), &toml.nodes[..]),
            (expected.clone(), &NODES.map(str::to_owned)[..])
        );
        let json: Config = serde_json::from_str(JSON).expect("a good file");
        assert_eq!((format!("{json:?}"), json.nodes), (expected, toml.nodes));
        let least: Config = toml::from_str("nodes = []").expect("a good file");
        assert_eq!(Builder::from_config(least).build().expect_err("none"), ConfigError::NoNodes);
        assert!(
            toml::from_str::<Config>("owner = true\nnodes = []").expect("good").owner == Some(true)
        );
    }

    #[test]
    fn unknown_or_invalid_setting_error_suggests_a_valid_one() {
        let unknown = refused("tll = \"10s\"");
        assert!(unknown.contains("unknown field `tll`") && unknown.contains("`ttl`"), "{unknown}");
        let empty: Config = toml::from_str("").expect("the nodes may come from the environment");
        assert_eq!(Builder::from_config(empty).build().expect_err("none"), ConfigError::NoNodes);
        for (bad, expected) in [
            ("ttl = 10", "a duration with its unit, such as 10s"),
            ("wait = \"10\"", "a duration with its unit, such as 10s"),
            ("retry = \"often\"", "jittered 50ms..250ms"),
            ("restart_guard = \"on\"", "observed, strict or off"),
            ("fenced = \"yes\"", "true or false"),
            ("drift_factor = \"1%\"", "a number such as 0.01"),
            ("ttl = true", "a duration with its unit"),
        ] {
            let told = refused(bad);
            assert!(told.contains(expected), "{bad}: {told}");
        }
    }

    #[test]
    fn config_errors_hide_passwords() {
        for bad in [
            r#"{"nodes": {"a": "redis://me:topsecret@a"}}"#,
            r#"{"nodes": ["redis://me:topsecret@a"], "node": ["redis://me:topsecret@a"]}"#,
            r#"{"nodes": [["redis://me:topsecret@a"]]}"#,
            r#"{"nodes": [7, "redis://me:topsecret@a"]}"#,
            r#"{"nodes": 7}"#,
        ] {
            let told = serde_json::from_str::<Config>(bad).expect_err(bad).to_string();
            assert!(!told.contains("secret") && told.len() > 20, "{told}");
        }
    }
}
