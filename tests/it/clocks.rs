//! Nodes whose wall clocks drift and jump. Keys expire by those clocks, leases end by ours.
#![cfg(target_os = "linux")]

use crate::quorum::Holds;
use crate::{SOON, builder, eventually, ms};
use kit::{Cluster, Server};
use quorlock::{AcquireError, Builder, Loss, Redlock, RetryPolicy};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

const MINUTE: Duration = Duration::from_mins(1);
const TTL: Duration = Duration::from_secs(1);

pub(crate) fn clocked(nodes: usize) -> Cluster {
    Cluster::start_with(nodes, &Server::builder().clock())
}

/// For short ttls.
fn short(cluster: &Cluster) -> Builder {
    builder(cluster).node_timeout(ms(200))
}

fn is_everywhere(cluster: &Cluster, value: &str) -> bool {
    cluster.iter().all(|node| node.get("r").as_deref() == Some(value.as_bytes()))
}

#[tokio::test]
async fn a_lease_outlives_the_jump_of_one_clock_and_nobody_else_gets_it() {
    let cluster = clocked(5);
    let holder = short(&cluster).ttl(ms(3_000)).build().expect("good");
    let other = builder(&cluster).build().expect("good settings");
    let lease = holder.acquire("r").auto_extend(MINUTE).await.expect("a free lock");
    let value = lease.value().to_owned();
    for jump in 0..3 {
        eventually("the key is everywhere", || is_everywhere(&cluster, &value)).await;
        // Another node each time, and past the end of every key. It may have it back at once; and Valkey 9.1 may
        // answer by an earlier reading of its clock for a moment.
        let expired =
            || cluster[jump].info("stats")["expired_keys"].parse::<u64>().expect("digits");
        let before = expired();
        cluster[jump].clock().jump(MINUTE);
        let has_forgotten = || cluster[jump].get("r").is_none() || expired() > before;
        eventually("this node has forgotten the lock", has_forgotten).await;
        let refused = other.try_acquire("r").await.expect_err("four of five remember it");
        let AcquireError::Contended { report, .. } = &refused else { panic!("{refused}") };
        assert!(report.granted() <= 1, "{report}");
        assert!(lease.is_valid(), "{:?}", lease.loss());
    }
    eventually("and they get it back", || is_everywhere(&cluster, &value)).await;
    assert!(lease.is_valid(), "{:?}", lease.loss());
    lease.release().await.expect("nodes are up");
    other.try_acquire("r").await.expect("a free lock").release().await.expect("nodes are up");
}

#[tokio::test]
async fn a_majority_of_nodes_whose_clocks_jump_forgets_the_lock_which_redlock_cannot_prevent() {
    let cluster = clocked(5);
    let first = builder(&cluster).build().expect("good settings");
    let second = builder(&cluster).build().expect("good settings");
    let lease = first.try_acquire("r").await.expect("a free lock");
    eventually("the key is everywhere", || is_everywhere(&cluster, lease.value())).await;
    for node in &cluster.servers()[..3] {
        node.clock().jump(MINUTE);
    }
    let thief = second.try_acquire("r").await.expect("a majority has forgotten the lock");
    assert!(lease.is_valid() && thief.is_valid(), "two hold it: the documented limit");
}

#[tokio::test]
async fn a_renewed_lease_is_told_that_the_clocks_of_a_majority_have_jumped() {
    let cluster = clocked(5);
    let redlock = builder(&cluster).build().expect("good settings");
    let lease = redlock.acquire("r").auto_extend(MINUTE).await.expect("a free lock");
    eventually("the key is everywhere", || is_everywhere(&cluster, lease.value())).await;
    for node in &cluster.servers()[..3] {
        node.clock().jump(MINUTE);
    }
    // The nodes push that the key is gone, long before the next renewal.
    assert_eq!(timeout(SOON, lease.lost()).await.expect("the loss is told"), Loss::QuorumLost);
    assert!(!lease.is_valid());
}

#[tokio::test]
async fn clocks_that_are_put_back_only_make_a_lost_lock_last_longer() {
    let cluster = clocked(5);
    let [one, other] = [(); 2].map(|()| short(&cluster).ttl(TTL).build().expect("good"));
    let lease = one.acquire("r").await.expect("a free lock");
    eventually("the key is everywhere", || is_everywhere(&cluster, lease.value())).await;
    cluster.iter().map(Server::clock).for_each(|clock| clock.jump_back(MINUTE));
    sleep(ms(1_500)).await;
    assert!(!lease.is_valid(), "the validity goes by the client's clock");
    other.try_acquire("r").await.expect_err("the nodes still have it");
    lease.release().await.expect("nodes are up");
    eventually("what is released is gone", || cluster.is_empty()).await;
    drop(other.try_acquire("r").await.expect("a free lock"));
}

/// Holds every lease to the very end of its validity, and never releases it: so the next holder has
/// to wait until a quorum of the nodes finds that it has expired.
async fn hold_to_the_end(
    redlock: Redlock,
    holds: Arc<Holds>,
    until: Instant,
    may_be_refused: bool,
) {
    let mut leases = Vec::new();
    while Instant::now() < until {
        let lease = match redlock.acquire("r").wait(SOON).await {
            Ok(lease) => lease,
            Err(_) if may_be_refused => return,
            Err(refused) => panic!("the ones before expire: {refused}"),
        };
        let since = Instant::now();
        holds.note_until(since, lease.valid_until());
        sleep(lease.validity()).await;
        leases.push(lease);
    }
}

/// Three clients with this allowance compete on five nodes that drift.
async fn contest(
    parts_per_million: [i32; 5],
    drift_factor: f64,
    may_be_refused: bool,
) -> Arc<Holds> {
    let (cluster, holds) = (clocked(5), Arc::new(Holds::default()));
    for (node, drift) in cluster.iter().zip(parts_per_million) {
        node.clock().drift(drift);
    }
    let until = Instant::now() + 4 * TTL;
    let clients = (0..3).map(|_| {
        let retry = RetryPolicy::jittered(ms(1)..ms(6));
        let settings = short(&cluster).ttl(TTL).retry(retry).drift_factor(drift_factor);
        let redlock = settings.build().expect("good settings");
        tokio::spawn(hold_to_the_end(redlock, holds.clone(), until, may_be_refused))
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("no failure");
    }
    holds
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn leases_exclude_each_other_on_nodes_that_drift_less_than_the_allowance() {
    // The default allowance is 1 %, and 2 ms.
    let holds = contest([5_000, -5_000, 5_000, -5_000, 5_000], 0.01, false).await;
    assert!(holds.assert_disjoint() >= 3, "it was handed on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_majority_that_drifts_more_than_the_allowance_is_found_out_and_a_larger_one_allows_for_it()
 {
    let fast = [200_000, 200_000, 200_000, 0, 0];
    let holds = contest(fast, 0.01, true).await;
    assert!(holds.assert_disjoint() >= 1, "served at first, and then no more");
    let holds = contest(fast, 0.2, false).await;
    assert!(holds.assert_disjoint() >= 3, "it was handed on");
}
