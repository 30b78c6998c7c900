//! What the nodes keep, beside what a lease promises to its holder.

use crate::{MAX_TTL, builder, eventually, ms};
use kit::{Cluster, Server};
use quorlock::{Lease, Redlock};
use std::time::{Duration, SystemTime};
use tokio::time::sleep;

/// A client that allows for no drift at all: a lease is valid for just as long as its keys must stand.
fn exact(cluster: &Cluster) -> Redlock {
    let drift = builder(cluster).drift_factor(0.0).drift_constant(Duration::ZERO);
    drift.build().expect("good settings")
}

fn wall_clock() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().expect("it is later than 1970")
}

/// By how much the key on `node` ends before the lease, at least. The server goes by whole milliseconds
/// of the wall clock, which the test reads before and after it.
fn ends_before(lease: &Lease, node: &Server) -> Duration {
    let valid_until = wall_clock() + lease.validity();
    let left_ms = u128::try_from(node.pttl(lease.resource())).expect("the key stands");
    // A key stands through the millisecond in which it expires.
    let gone_at_ms = wall_clock().as_millis() + left_ms + 1;
    let gone_at = Duration::from_millis(u64::try_from(gone_at_ms).expect("below 2^64"));
    valid_until.saturating_sub(gone_at)
}

#[tokio::test]
async fn without_a_drift_allowance_no_key_ends_before_its_lease() {
    let cluster = Cluster::start(3);
    let redlock = exact(&cluster);
    let mut early = Vec::new();
    for round in 0..60 {
        let lease = redlock.acquire("r").await.expect("a free lock");
        // Whenever it is extended: at any fraction of a millisecond.
        sleep(Duration::from_micros(round * 37)).await;
        lease.extend(ms(31_000)).await.expect("nodes are up");
        eventually("all have extended it", || cluster.iter().all(|node| node.pttl("r") > 30_000))
            .await;
        early.extend(cluster.iter().map(|node| ends_before(&lease, node)));
        lease.release().await.expect("nodes are up");
    }
    early.retain(|by| !by.is_zero());
    assert!(early.is_empty(), "{} keys of 180 end before their lease: {early:?}", early.len());
}

#[tokio::test]
async fn a_check_sets_keys_that_outlive_the_lease_by_the_drift_allowance() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build().expect("good settings");
    // It is not renewed within any test.
    let lease = redlock.acquire("r").ttl(MAX_TTL).auto_extend(MAX_TTL).await.expect("a free lock");
    eventually("the key is everywhere", || cluster.all_have("r")).await;
    // Somebody shortens the keys: the nodes tell it, and are asked whether it is still held.
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
    assert!(lease.valid_until() <= before + ms(500), "a check does not make it longer");
    assert!(lease.is_valid());
}
