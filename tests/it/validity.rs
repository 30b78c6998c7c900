//! Tests that compare the expiry of the keys on the nodes with the validity of the lease.

use crate::{MAX_TTL, builder, eventually, ms};
use kit::{Cluster, Server};
use quorlock::{Lease, Redlock, ReleaseOutcome};
use std::time::{Duration, SystemTime};
use tokio::time::sleep;

/// Creates a client without a drift allowance. Its leases are valid exactly as long as their keys are guaranteed to
/// exist.
fn exact(cluster: &Cluster) -> Redlock {
    let drift = builder(cluster).drift_factor(0.0).drift_constant(Duration::ZERO);
    drift.build().expect("valid settings")
}

fn wall_clock() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().expect("after 1970")
}

/// Returns how much earlier than the lease the key on `node` expires. The result is a lower bound, and zero if the key
/// outlives the lease. The server uses whole milliseconds of the wall clock, so the test reads this clock before and
/// after the server.
fn ends_before(lease: &Lease, node: &Server) -> Duration {
    let valid_until = wall_clock() + lease.validity();
    let left_ms = u128::try_from(node.pttl(lease.resource())).expect("the key exists");
    // A key exists until the end of the millisecond in which it expires.
    let expires_at_ms = wall_clock().as_millis() + left_ms + 1;
    let expires_at = Duration::from_millis(u64::try_from(expires_at_ms).expect("below 2^64"));
    valid_until.saturating_sub(expires_at)
}

#[tokio::test]
async fn keys_outlive_the_lease_without_drift_allowance() {
    let cluster = Cluster::start(3);
    let redlock = exact(&cluster);
    let mut early = Vec::new();
    for round in 0..60 {
        let lease = redlock.acquire("r").await.expect("the lock is free");
        // Each round extends the lease at a different fraction of a millisecond.
        sleep(Duration::from_micros(round * 37)).await;
        lease.extend(ms(31_000)).await.expect("nodes are up");
        eventually("all nodes have extended the key", || {
            cluster.iter().all(|node| node.pttl("r") > 30_000)
        })
        .await;
        early.extend(cluster.iter().map(|node| ends_before(&lease, node)));
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
    early.retain(|by| !by.is_zero());
    assert!(early.is_empty(), "{} keys of 180 expire before their lease: {early:?}", early.len());
}

#[tokio::test]
async fn check_restores_the_expiry_with_drift_allowance() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build().expect("valid settings");
    // With this ttl, the lease is not renewed during the test.
    let lease =
        redlock.acquire("r").ttl(MAX_TTL).auto_extend(MAX_TTL).await.expect("the lock is free");
    eventually("all nodes have the key", || cluster.all_have("r")).await;
    // Another client shortens the keys. The nodes push this change, and the client checks the keys.
    let before = lease.valid_until();
    for node in &cluster {
        node.cmd(&["PEXPIRE", "r", "600000"]);
    }
    let allowance = MAX_TTL / 101;
    eventually("the keys outlive the lease again", || {
        let validity = lease.validity();
        let pttl = |node: &Server| Duration::from_millis(node.pttl("r").unsigned_abs());
        cluster.iter().all(|node| pttl(node) >= validity + allowance)
    })
    .await;
    assert!(lease.valid_until() <= before + ms(500), "a check does not lengthen the lease");
    assert!(lease.is_valid());
}
