//! Tests of valid settings with extreme values.

use crate::{SOON, eventually, ms};
use kit::Cluster;
use quorlock::{AcquireError, Builder, Lease, Redlock, ReleaseOutcome, RestartGuard, RetryPolicy};
use std::time::Duration;

/// The longest ttl that the library accepts.
const CENTURY: Duration = Duration::from_hours(100 * 365 * 24);

fn hours(hours: u64) -> Duration {
    Duration::from_hours(hours)
}

/// Returns settings without a drift allowance. The ttl and the node timeout are long enough for a busy machine.
fn plain(cluster: &Cluster) -> Builder {
    let builder = Redlock::builder().nodes(cluster.urls()).ttl(ms(30_000)).node_timeout(ms(5_000));
    builder.drift_factor(0.0).drift_constant(Duration::ZERO).connect_timeout(SOON)
}

fn has_validity(cluster: &Cluster, lease: &Lease, ttl: Duration, drift: Duration) -> bool {
    let longest = i64::try_from(ttl.as_millis()).expect("within i64");
    let fits = |pttl: i64| pttl > 0 && pttl <= longest;
    let validity = ttl.saturating_sub(drift);
    lease.is_valid()
        && lease.validity() <= validity
        && lease.validity() > validity.saturating_sub(SOON)
        && lease.valid_until() > std::time::Instant::now()
        && cluster.iter().filter(|node| fits(node.pttl("r"))).count() >= 2
}

#[tokio::test]
async fn extreme_settings_take_effect() {
    let cluster = Cluster::start(3);
    let none = Duration::ZERO;
    for (what, builder, ttl, drift) in [
        ("no allowance for drift", plain(&cluster), ms(30_000), none),
        ("the longest ttl", plain(&cluster).max_ttl(ms(30_000)), ms(30_000), none),
        (
            "a hundred years",
            plain(&cluster).max_ttl(CENTURY).ttl(CENTURY).restart_guard(RestartGuard::Off),
            CENTURY,
            none,
        ),
        (
            "a hundred years, and a node timeout of fifty",
            plain(&cluster).max_ttl(CENTURY).ttl(CENTURY).node_timeout(CENTURY / 2),
            CENTURY,
            none,
        ),
        (
            "a drift allowance of almost the whole ttl",
            plain(&cluster).max_ttl(CENTURY).ttl(CENTURY).drift_factor(0.999_999),
            CENTURY,
            CENTURY / 1_000_000 * 999_999,
        ),
        (
            "a large constant",
            plain(&cluster).max_ttl(hours(2)).ttl(hours(2)).drift_constant(hours(1)),
            hours(2),
            hours(1),
        ),
        ("a token ttl of the max ttl", plain(&cluster).token_ttl(ms(60_000)), ms(30_000), none),
        (
            "a token ttl of a hundred years",
            plain(&cluster).max_ttl(CENTURY).token_ttl(CENTURY),
            ms(30_000),
            none,
        ),
        (
            "waits without a limit",
            plain(&cluster).wait(Duration::MAX).connect_timeout(Duration::MAX),
            ms(30_000),
            none,
        ),
    ] {
        let redlock = builder.build().unwrap_or_else(|error| panic!("{what}: {error}"));
        for is_fenced in [false, true] {
            let acquire = || {
                let acquire = redlock.acquire("r");
                if is_fenced { acquire.fenced() } else { acquire }
            };
            let lease = acquire().await.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(has_validity(&cluster, &lease, ttl, drift), "{what}: {lease:?}");
            lease.extend(ttl).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(has_validity(&cluster, &lease, ttl, drift), "{what}, extended: {lease:?}");
            assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "{what}");
            let kept = acquire().auto_extend_forever().await;
            let kept = kept.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(kept.is_valid(), "{what}, renewed: {kept:?}");
            assert!(redlock.status("r").await.is_ok_and(|status| status.is_held()), "{what}");
            assert_eq!(kept.release().await, Ok(ReleaseOutcome::Released), "{what}");
        }
        let checks = redlock.check().await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(checks.iter().all(|node| node.version().is_some()), "{what}: {checks:?}");
        redlock.close().await.unwrap_or_else(|error| panic!("{what}: {error}"));
        let is_free = || cluster.none_has("r");
        eventually(&format!("the lock is released: {what}"), is_free).await;
    }
}

#[tokio::test]
async fn lease_is_renewed_with_limiting_settings() {
    let cluster = Cluster::start(3);
    let short = || plain(&cluster).ttl(ms(3_000)).node_timeout(ms(2_000));
    let clients = [
        short(),
        short().max_ttl(ms(3_000)).token_ttl(ms(3_000)),
        short().max_ttl(CENTURY).token_ttl(CENTURY).wait(Duration::MAX),
        short().drift_constant(ms(500)).connect_timeout(Duration::MAX),
    ];
    let renewed = clients.into_iter().enumerate().map(|(place, builder)| {
        let redlock = builder.build().expect("valid settings");
        async move {
            let lease = redlock.acquire(format!("{place}")).fenced().auto_extend(hours(1)).await;
            let lease = lease.expect("the lock is free");
            tokio::time::sleep(ms(4_500)).await;
            assert!(lease.is_valid(), "{place}: {:?}", lease.loss());
            assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "{place}");
        }
    });
    futures::future::join_all(renewed).await;
}

/// Checks that every refusal has a reason and that no key is left if the times in the settings are very small. With
/// these settings, a busy machine may refuse any operation.
#[tokio::test]
async fn smallest_times_leave_no_keys() {
    let cluster = Cluster::start(3);
    let nano = Duration::from_nanos(1);
    for builder in [
        plain(&cluster).ttl(ms(1)).max_ttl(ms(1)).node_timeout(nano),
        plain(&cluster).ttl(ms(1)).max_ttl(ms(1)).node_timeout(nano * 999_999),
        plain(&cluster).ttl(ms(20)).node_timeout(ms(5)).wait(ms(200)),
        plain(&cluster).node_timeout(nano),
        plain(&cluster).connect_timeout(nano).node_timeout(ms(50)),
        plain(&cluster).wait(Duration::ZERO),
        plain(&cluster).wait(nano).retry(RetryPolicy::fixed(Duration::ZERO)),
    ] {
        let redlock = builder.build().expect("valid settings");
        for _ in 0..20 {
            let attempts = [redlock.try_acquire("r"), redlock.acquire("r").wait(ms(20)).fenced()];
            for acquire in attempts.into_iter().chain([redlock.acquire("r").auto_extend(hours(1))])
            {
                match acquire.await {
                    Ok(lease) => {
                        let _ = lease.extend(ms(1)).await;
                        let _ = lease.release().await;
                    }
                    Err(AcquireError::Invalid(reason)) => panic!("{reason}"),
                    Err(refused) => assert!(!refused.to_string().is_empty()),
                }
            }
        }
        let _ = redlock.close().await;
        let is_free = || cluster.none_has("r");
        eventually("no lock is left", is_free).await;
    }
}

#[tokio::test]
async fn released_lock_is_acquired_with_any_retry_policy() {
    let cluster = Cluster::start(3);
    let holder = plain(&cluster).build().expect("valid settings");
    for retry in [
        RetryPolicy::fixed(Duration::ZERO),
        RetryPolicy::fixed(Duration::MAX),
        RetryPolicy::linear(Duration::MAX, Duration::MAX),
        RetryPolicy::exponential(Duration::ZERO, Duration::ZERO),
        RetryPolicy::exponential(Duration::MAX, Duration::MAX),
        RetryPolicy::jittered(Duration::MAX..Duration::ZERO),
        RetryPolicy::jittered(Duration::ZERO..Duration::MAX),
        RetryPolicy::fixed(ms(1)).limit(u32::MAX),
    ] {
        let waiter = plain(&cluster).wait(Duration::MAX).retry(retry.clone());
        let waiter = waiter.build().expect("valid settings");
        let held = holder.acquire("r").wait(SOON).await.expect("the lock is free");
        let waiting = tokio::spawn(async move { waiter.acquire("r").await });
        tokio::time::sleep(ms(50)).await;
        assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
        let result = tokio::time::timeout(SOON, waiting).await;
        let lease = result.unwrap_or_else(|_| panic!("no push: {retry:?}"));
        let lease = lease.expect("no panic").expect("the lock is released");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "{retry:?}");
    }
}
