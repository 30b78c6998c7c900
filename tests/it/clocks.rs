//! Tests with nodes whose wall clocks drift and jump. A key expires by its node's clock, and a lease by the client's
//! clock.
#![cfg(target_os = "linux")]

use crate::quorum::Holds;
use crate::{SOON, builder, eventually, ms};
use kit::{Cluster, Server};
use quorlock::{AcquireError, Builder, Finding, Loss, Redlock, ReleaseOutcome, RetryPolicy};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

const MINUTE: Duration = Duration::from_mins(1);
const TTL: Duration = Duration::from_secs(1);

pub(crate) fn clocked(nodes: usize) -> Cluster {
    Cluster::start_with(nodes, &Server::builder().clock())
}

fn short(cluster: &Cluster) -> Builder {
    builder(cluster).node_timeout(ms(200))
}

fn is_everywhere(cluster: &Cluster, value: &str) -> bool {
    cluster.iter().all(|node| node.get("r").as_deref() == Some(value.as_bytes()))
}

#[tokio::test]
async fn lease_survives_clock_jump_of_one_node() {
    let cluster = clocked(5);
    let holder = short(&cluster).ttl(ms(3_000)).build().expect("valid settings");
    let other = builder(&cluster).build().expect("valid settings");
    let lease = holder.acquire("r").auto_extend(MINUTE).await.expect("the lock is free");
    let value = lease.value().to_owned();
    for jump in 0..3 {
        eventually("all nodes have the key", || is_everywhere(&cluster, &value)).await;
        // Each round moves another node's clock past the expiry of all keys. The client may restore the key
        // immediately, so the test also reads `expired_keys`. Valkey 9.1 may use an earlier reading of its clock for a
        // short time.
        let expired =
            || cluster[jump].info("stats")["expired_keys"].parse::<u64>().expect("digits");
        let before = expired();
        cluster[jump].clock().jump(MINUTE);
        let has_expired = || cluster[jump].get("r").is_none() || expired() > before;
        eventually("the key has expired on this node", has_expired).await;
        let refused = other.try_acquire("r").await.expect_err("four of five nodes have the key");
        let AcquireError::Contended { report, .. } = &refused else { panic!("{refused}") };
        assert!(report.granted() <= 1, "{report}");
        assert!(lease.is_valid(), "{:?}", lease.loss());
    }
    eventually("the key is restored", || is_everywhere(&cluster, &value)).await;
    assert!(lease.is_valid(), "{:?}", lease.loss());
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    assert_eq!(
        other.try_acquire("r").await.expect("the lock is free").release().await,
        Ok(ReleaseOutcome::Released)
    );
}

#[tokio::test]
async fn clock_jumps_on_a_majority_allow_a_second_holder() {
    let cluster = clocked(5);
    let first = builder(&cluster).build().expect("valid settings");
    let second = builder(&cluster).build().expect("valid settings");
    let lease = first.try_acquire("r").await.expect("the lock is free");
    eventually("all nodes have the key", || is_everywhere(&cluster, lease.value())).await;
    for node in &cluster.servers()[..3] {
        node.clock().jump(MINUTE);
    }
    let thief = second.try_acquire("r").await.expect("the key has expired on a majority");
    assert!(lease.is_valid() && thief.is_valid(), "two holders: the documented limit");
}

#[tokio::test]
async fn renewed_lease_reports_loss_after_majority_clock_jump() {
    let cluster = clocked(5);
    let redlock = builder(&cluster).build().expect("valid settings");
    let lease = redlock.acquire("r").auto_extend(MINUTE).await.expect("the lock is free");
    eventually("all nodes have the key", || is_everywhere(&cluster, lease.value())).await;
    for node in &cluster.servers()[..3] {
        node.clock().jump(MINUTE);
    }
    // The nodes push the expiry of the key long before the next renewal.
    assert_eq!(timeout(SOON, lease.lost()).await.expect("the loss is reported"), Loss::QuorumLost);
    assert!(!lease.is_valid());
}

#[tokio::test]
async fn clocks_set_back_only_prolong_keys() {
    let cluster = clocked(5);
    let [one, other] = [(); 2].map(|()| short(&cluster).ttl(TTL).build().expect("valid settings"));
    let lease = one.acquire("r").await.expect("the lock is free");
    eventually("all nodes have the key", || is_everywhere(&cluster, lease.value())).await;
    cluster.iter().map(Server::clock).for_each(|clock| clock.jump_back(MINUTE));
    sleep(ms(1_500)).await;
    assert!(!lease.is_valid(), "the validity goes by the client's clock");
    other.try_acquire("r").await.expect_err("the keys have not expired");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    eventually("the keys are deleted", || cluster.is_empty()).await;
    drop(other.try_acquire("r").await.expect("the lock is free"));
}

/// Acquires the lock repeatedly and holds each lease until its validity ends, without releasing it. The next holder can
/// acquire the lock only after the key has expired on a quorum.
async fn hold_to_the_end(
    redlock: Redlock,
    holds: Arc<Holds>,
    until: Instant,
    may_be_refused: bool,
) {
    let mut leases = Vec::new();
    while Instant::now() < until {
        let wait =
            if may_be_refused { until.saturating_duration_since(Instant::now()) } else { SOON };
        let lease = match redlock.acquire("r").wait(wait).await {
            Ok(lease) => lease,
            Err(_) if may_be_refused => return,
            Err(refused) => panic!("the lock expires: {refused}"),
        };
        let since = Instant::now();
        holds.record_until(since, lease.valid_until());
        sleep(lease.validity()).await;
        leases.push(lease);
    }
}

async fn compete_on_drifting_nodes(
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
        let redlock = settings.build().expect("valid settings");
        tokio::spawn(hold_to_the_end(redlock, holds.clone(), until, may_be_refused))
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("no failure");
    }
    holds
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn leases_stay_disjoint_if_drift_is_within_the_allowance() {
    // The default allowance is 1 % plus 2 ms.
    let holds = compete_on_drifting_nodes([5_000, -5_000, 5_000, -5_000, 5_000], 0.01, false).await;
    assert!(holds.assert_disjoint() >= 3, "several clients held the lock");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn drift_above_the_allowance_is_refused_until_it_is_raised() {
    let fast = [200_000, 200_000, 200_000, 0, 0];
    let holds = compete_on_drifting_nodes(fast, 0.01, true).await;
    assert!(holds.assert_disjoint() >= 1, "the first acquire succeeds");
    let holds = compete_on_drifting_nodes(fast, 0.2, false).await;
    assert!(holds.assert_disjoint() >= 3, "several clients held the lock");
}

#[tokio::test]
async fn clocks_set_back_are_reported_with_excessive_ttls() {
    let hour = Duration::from_hours(1);
    let cluster = Cluster::start_with(3, &Server::builder().durable().clock());
    let builder = builder(&cluster).node_timeout(ms(5_000)).max_ttl(MINUTE);
    let redlock = builder.build().expect("valid settings");
    let held = redlock.try_acquire("r").await.expect("the lock is free");
    eventually("all nodes have the key", || cluster.all_have("r")).await;
    for put_back in [0, 2] {
        cluster[put_back].clock().jump_back(hour);
    }
    let nodes = redlock.check().await.expect("the client is open");
    for node in &nodes {
        let [Finding::ClocksDisagree { by, near_client, others }] = node.findings() else {
            panic!("{node}")
        };
        assert!(by.abs_diff(hour) < MINUTE, "{node}");
        assert_eq!((near_client.len(), others.len()), (1, 2), "{node}");
        assert!(near_client[0].ends_with(&cluster[1].port().to_string()), "{node}");
    }
    let status = redlock.status("r").await.expect("the client is open");
    for (node, is_too_long) in status.nodes().iter().zip([true, false, true]) {
        let holder = node.holder().expect("it is held");
        assert_eq!(holder.exceeds_max_ttl(), is_too_long, "{status}");
    }
    let refused = redlock.acquire("r").max_attempts(1).await.expect_err("it is held").to_string();
    let remark = "longer than max_ttl 60.0s: the node's clock was set back";
    assert_eq!(status.to_string().matches(remark).count(), 2, "{status}");
    assert!(
        refused.contains(remark),
        "at least one of two refusals is from such a node: {refused}"
    );
    drop(held);
    eventually("the lock is released", || cluster.is_empty()).await;
}
