//! Locks that nobody is to have for a while after their release.

use crate::{MAX_TTL, client, eventually};
use kit::Cluster;
use quorlock::{AcquireError, ConfigError, ReleaseError, ReleaseOutcome};
use std::time::Duration;

/// Nobody holds it, and nobody gets it for more than half of the longest ttl.
fn cools_down(cluster: &Cluster, key: &str) -> bool {
    let half = i64::try_from(MAX_TTL.as_millis() / 2).expect("it fits");
    let longest = half * 2;
    cluster.iter().all(|node| (half..=longest).contains(&node.pttl(key)))
}

#[tokio::test]
async fn one_that_is_too_long_lets_nobody_in_at_once() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    for (key, cool_down) in [("a", MAX_TTL + Duration::from_nanos(1)), ("b", Duration::MAX)] {
        let lease = redlock.try_acquire(key).await.expect("a free lock");
        eventually("all have it", || lease.report().granted() == 3).await;
        let refused = lease.release_after(cool_down).await.expect_err("it is too long");
        let reason = ConfigError::CoolDownExceedsMax { cool_down, max_ttl: MAX_TTL };
        assert_eq!(refused, ReleaseError::Invalid(reason));
        let said = refused.to_string();
        assert!(said.contains("cool-down") && said.contains("max_ttl 3600s"), "{said}");
        eventually("it stands everywhere", || cools_down(&cluster, key)).await;
        let refused = redlock.try_acquire(key).await.expect_err("it cools down");
        assert!(matches!(refused, AcquireError::Contended { held_here: false, .. }), "{refused}");
    }
    let lease = redlock.try_acquire("c").await.expect("a free lock");
    eventually("all have it", || lease.report().granted() == 3).await;
    assert_eq!(lease.release_after(MAX_TTL).await, Ok(ReleaseOutcome::Released));
    eventually("it stands everywhere", || cools_down(&cluster, "c")).await;
}

#[tokio::test]
async fn one_that_is_too_long_leaves_the_lock_to_the_other_guards() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.try_acquire("r").await.expect("a free lock");
    let other = lease.reenter().expect("it is held");
    lease.release_after(Duration::MAX).await.expect_err("it is too long");
    assert!(other.is_valid());
    assert_eq!(other.release().await, Ok(ReleaseOutcome::Released));
    eventually("no key is left", || cluster.is_empty()).await;
}

#[cfg(feature = "blocking")]
#[tokio::test]
async fn one_that_may_not_be_waited_for_is_kept_all_the_same() {
    let cluster = Cluster::start(3);
    let redlock = crate::builder(&cluster).build_blocking().expect("good settings");
    let acquiring = redlock.clone();
    let acquired = tokio::task::spawn_blocking(move || acquiring.try_acquire("r").call());
    let lease = acquired.await.expect("no panic").expect("a free lock");
    eventually("all have it", || lease.report().granted() == 3).await;
    assert_eq!(lease.release_after(MAX_TTL), Err(quorlock::blocking::Error::InsideRuntime));
    kit::eventually(crate::SOON, "it stands everywhere", || cools_down(&cluster, "r"));
    drop(tokio::task::spawn_blocking(move || drop(redlock)).await);
    assert!(cools_down(&cluster, "r"), "not released");
}
