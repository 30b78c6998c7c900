//! Settings that are extreme and valid: each does what it says.

use crate::{SOON, eventually, ms};
use kit::Cluster;
use quorlock::{AcquireError, Builder, Lease, Redlock, ReleaseOutcome, RestartGuard, RetryPolicy};
use std::time::Duration;

/// The longest ttl that Redis can be told.
const CENTURY: Duration = Duration::from_hours(100 * 365 * 24);

fn hours(hours: u64) -> Duration {
    Duration::from_hours(hours)
}

/// A ttl that outlasts what a busy machine does, a node timeout that does so, and a client without
/// allowance for drift.
fn plain(cluster: &Cluster) -> Builder {
    let builder = Redlock::builder().nodes(cluster.urls()).ttl(ms(30_000)).node_timeout(ms(5_000));
    builder.drift_factor(0.0).drift_constant(Duration::ZERO).connect_timeout(SOON)
}

/// What can be said of a lease of `ttl` whose allowance for drift is `drift`.
fn is_as_promised(cluster: &Cluster, lease: &Lease, ttl: Duration, drift: Duration) -> bool {
    let most = i64::try_from(ttl.as_millis()).expect("it fits");
    let stands = |pttl: i64| pttl > 0 && pttl <= most;
    let validity = ttl.saturating_sub(drift);
    lease.is_valid()
        && lease.validity() <= validity
        && lease.validity() > validity.saturating_sub(SOON)
        && lease.valid_until() > std::time::Instant::now()
        && cluster.iter().filter(|node| stands(node.pttl("r"))).count() >= 2
}

#[tokio::test]
async fn extreme_settings_do_what_they_say() {
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
            "almost all is allowance",
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
        ("tokens for as long as leases", plain(&cluster).token_ttl(ms(60_000)), ms(30_000), none),
        (
            "tokens for a hundred years",
            plain(&cluster).max_ttl(CENTURY).token_ttl(CENTURY),
            ms(30_000),
            none,
        ),
        (
            "no end of waiting",
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
            assert!(is_as_promised(&cluster, &lease, ttl, drift), "{what}: {lease:?}");
            lease.extend(ttl).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(is_as_promised(&cluster, &lease, ttl, drift), "{what}, extended: {lease:?}");
            assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "{what}");
            let kept = acquire().auto_extend_forever().await;
            let kept = kept.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(kept.is_valid(), "{what}, kept up: {kept:?}");
            assert!(redlock.status("r").await.is_ok_and(|status| status.is_held()), "{what}");
            assert_eq!(kept.release().await, Ok(ReleaseOutcome::Released), "{what}");
        }
        let checks = redlock.check().await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(checks.iter().all(|node| node.version().is_some()), "{what}: {checks:?}");
        redlock.close().await.unwrap_or_else(|error| panic!("{what}: {error}"));
        let is_free = || cluster.none_has("r");
        eventually(&format!("it is free again: {what}"), is_free).await;
    }
}

#[tokio::test]
async fn at_their_edges_settings_keep_a_lease_up() {
    let cluster = Cluster::start(3);
    let short = || plain(&cluster).ttl(ms(3_000)).node_timeout(ms(2_000));
    let clients = [
        short(),
        short().max_ttl(ms(3_000)).token_ttl(ms(3_000)),
        short().max_ttl(CENTURY).token_ttl(CENTURY).wait(Duration::MAX),
        short().drift_constant(ms(500)).connect_timeout(Duration::MAX),
    ];
    let kept_up = clients.into_iter().enumerate().map(|(place, builder)| {
        let redlock = builder.build().expect("good settings");
        async move {
            let lease = redlock.acquire(format!("{place}")).fenced().auto_extend(hours(1)).await;
            let lease = lease.expect("a free lock");
            tokio::time::sleep(ms(4_500)).await;
            assert!(lease.is_valid(), "{place}: {:?}", lease.loss());
            assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "{place}");
        }
    });
    futures::future::join_all(kept_up).await;
}

/// Nothing can be promised of them on a busy machine but that they refuse with a reason, and leave
/// nothing.
#[tokio::test]
async fn the_smallest_times_refuse_or_work_and_leave_nothing() {
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
        let redlock = builder.build().expect("good settings");
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
async fn whatever_the_retries_a_lock_that_is_released_is_had() {
    let cluster = Cluster::start(3);
    let holder = plain(&cluster).build().expect("good settings");
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
        let waits = plain(&cluster).wait(Duration::MAX).retry(retry.clone());
        let waits = waits.build().expect("good settings");
        let held = holder.acquire("r").wait(SOON).await.expect("a free lock");
        let waiting = tokio::spawn(async move { waits.acquire("r").await });
        tokio::time::sleep(ms(50)).await;
        assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
        let had = tokio::time::timeout(SOON, waiting).await;
        let lease = had.unwrap_or_else(|_| panic!("it is pushed: {retry:?}"));
        let lease = lease.expect("no panic").expect("it is free");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "{retry:?}");
    }
}
