//! Tests of the cool-down, which keeps a lock unavailable for a time after its release.

use crate::{MAX_TTL, client, eventually};
use kit::Cluster;
use quorlock::{AcquireError, ConfigError, ReleaseError, ReleaseOutcome};
use std::time::Duration;

/// Returns true if a cool-down of about `MAX_TTL` is active: on every node, the key's remaining TTL is between half of
/// `MAX_TTL` and `MAX_TTL`.
fn cool_down_runs(cluster: &Cluster, key: &str) -> bool {
    let half = i64::try_from(MAX_TTL.as_millis() / 2).expect("within i64");
    let longest = half * 2;
    cluster.iter().all(|node| (half..=longest).contains(&node.pttl(key)))
}

#[tokio::test]
async fn too_long_cool_down_is_refused_and_shortened_to_max_ttl() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    for (key, cool_down) in [("a", MAX_TTL + Duration::from_nanos(1)), ("b", Duration::MAX)] {
        let lease = redlock.try_acquire(key).await.expect("the lock is free");
        eventually("all nodes have the key", || lease.report().granted() == 3).await;
        let refused = lease.release_after(cool_down).await.expect_err("the cool-down is too long");
        let reason = ConfigError::CoolDownExceedsMax { cool_down, max_ttl: MAX_TTL };
        assert_eq!(refused, ReleaseError::Invalid(reason));
        let text = refused.to_string();
        assert!(text.contains("cool-down") && text.contains("max_ttl 3600s"), "{text}");
        eventually("the cool-down runs on every node", || cool_down_runs(&cluster, key)).await;
        let refused = redlock.try_acquire(key).await.expect_err("the cool-down runs");
        assert!(matches!(refused, AcquireError::Contended { held_here: false, .. }), "{refused}");
    }
    let lease = redlock.try_acquire("c").await.expect("the lock is free");
    eventually("all nodes have the key", || lease.report().granted() == 3).await;
    assert_eq!(lease.release_after(MAX_TTL).await, Ok(ReleaseOutcome::Released));
    eventually("the cool-down runs on every node", || cool_down_runs(&cluster, "c")).await;
}

#[tokio::test]
async fn too_long_cool_down_keeps_the_lock_for_other_guards() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.try_acquire("r").await.expect("the lock is free");
    let other = lease.reenter().expect("it is held");
    lease.release_after(Duration::MAX).await.expect_err("the cool-down is too long");
    assert!(other.is_valid());
    assert_eq!(other.release().await, Ok(ReleaseOutcome::Released));
    eventually("no key is left", || cluster.is_empty()).await;
}

#[cfg(feature = "blocking")]
#[tokio::test]
async fn cool_down_applies_when_blocking_release_is_refused() {
    let cluster = Cluster::start(3);
    let redlock = crate::builder(&cluster).build_blocking().expect("valid settings");
    let acquiring = redlock.clone();
    let acquired = tokio::task::spawn_blocking(move || acquiring.try_acquire("r").call());
    let lease = acquired.await.expect("no panic").expect("the lock is free");
    eventually("all nodes have the key", || lease.report().granted() == 3).await;
    assert_eq!(lease.release_after(MAX_TTL), Err(quorlock::blocking::Error::InsideRuntime));
    kit::eventually(crate::SOON, "the cool-down runs on every node", || {
        cool_down_runs(&cluster, "r")
    });
    drop(tokio::task::spawn_blocking(move || drop(redlock)).await);
    assert!(cool_down_runs(&cluster, "r"), "the cool-down still runs");
}
