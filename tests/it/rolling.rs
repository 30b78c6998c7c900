//! Tests with nodes that restart one after another without data while new clients connect.
#![cfg(target_os = "linux")]

use crate::quorum::Holds;
use crate::restarts::{advance_past_quarantine, past_quarantine};
use crate::{builder, eventually, ms, warm_up};
use futures::future::join_all;
use kit::Cluster;
use quorlock::{AcquireError, Lease, NodeFailure, NodeVote, Redlock};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, sleep_until};

const MINUTE: Duration = Duration::from_mins(1);
/// A short TTL, so that many rounds fit into a test. No quarantine ends within a round.
const TTL: Duration = Duration::from_secs(2);
const ROUND: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Observed {
    /// The number of refusals that named a restarted node while A's lease was valid.
    restarts: usize,
    /// Reports of acquires that succeeded although another client held the lock.
    shared: Vec<String>,
}

fn fresh(cluster: &Cluster) -> Redlock {
    let builder = builder(cluster).max_ttl(TTL).ttl(TTL).node_timeout(ms(500));
    builder.build().expect("valid settings")
}

fn names_a_restart(refused: &AcquireError) -> bool {
    let was_restarted =
        |vote: &NodeVote| matches!(vote, NodeVote::Failed(NodeFailure::Restarted { .. }));
    let report = refused.report();
    report.is_some_and(|report| report.nodes().iter().any(|node| was_restarted(node.vote())))
}

/// Creates a client at `from` that tries to acquire the lock until `until`. Returns the client's observations. Also
/// returns its lease, if it has one, so that the client keeps the lock until the round ends.
async fn try_until(
    cluster: Arc<Cluster>,
    holder: Arc<Lease>,
    (from, until): (Instant, Instant),
) -> (Observed, Option<(Instant, Lease)>) {
    sleep_until(from.into()).await;
    let (redlock, mut observed) = (fresh(&cluster), Observed::default());
    while Instant::now() < until {
        match redlock.try_acquire("r").await {
            Ok(lease) => {
                let since = Instant::now();
                // If both leases are valid in this order, both were valid at the first check.
                if holder.is_valid() && lease.is_valid() {
                    observed.shared.push(format!("{:?}", lease.report()));
                }
                return (observed, Some((since, lease)));
            }
            Err(refused) => {
                let counts = holder.is_valid() && names_a_restart(&refused);
                observed.restarts += usize::from(counts);
            }
        }
        sleep(ms(10)).await;
    }
    (observed, None)
}

async fn restart_majority(cluster: Arc<Cluster>, mut random: StdRng) {
    let mut nodes: Vec<_> = (0..cluster.len()).collect();
    nodes.shuffle(&mut random);
    for node in nodes.drain(..=cluster.len() / 2) {
        sleep(ms(random.random_range(0..250))).await;
        let cluster = cluster.clone();
        spawn_blocking(move || cluster[node].restart()).await.expect("the server restarts");
    }
}

/// Runs one round: A holds the lock on all nodes, a majority of the nodes restarts, and three new clients try to
/// acquire the lock.
async fn round(cluster: &Arc<Cluster>, random: &mut StdRng) -> Observed {
    // This also ends the leases of the previous round.
    advance_past_quarantine(cluster).await;
    eventually("no key is left", || cluster.is_empty()).await;
    let a = fresh(cluster);
    warm_up(&a).await;
    let acquire = a.acquire("r");
    let is_renewed = random.random_ratio(2, 3);
    let acquire = if is_renewed { acquire.auto_extend(MINUTE) } else { acquire };
    let holder = Arc::new(acquire.await.expect("the lock is free"));
    eventually("all nodes have granted", || holder.report().granted() == cluster.len()).await;
    let started = Instant::now();
    let rolling = tokio::spawn(restart_majority(cluster.clone(), StdRng::from_rng(random)));
    let new_clients: Vec<_> = (0..3)
        .map(|_| {
            let from = started + ms(random.random_range(0..700));
            tokio::spawn(try_until(cluster.clone(), holder.clone(), (from, started + ROUND)))
        })
        .collect();
    let (mut all, mut leases, holds) = (Observed::default(), Vec::new(), Holds::default());
    for new_client in new_clients {
        let (observed, acquired) = new_client.await.expect("no panic");
        all.restarts += observed.restarts;
        all.shared.extend(observed.shared);
        if let Some((since, lease)) = acquired {
            holds.record_until(since, lease.valid_until());
            leases.push(lease);
        }
    }
    let overlaps = holds.overlaps();
    if !overlaps.is_empty() {
        all.shared.push(format!("new clients overlap by {overlaps:?}"));
    }
    rolling.await.expect("all nodes restart");
    all
}

/// The number of refusals because of a restart that a result needs.
const MIN_RESTARTS: usize = 20;

/// Checks mutual exclusion in ten rounds on each of ten concurrent clusters of `nodes` nodes. On a busy machine, clients
/// see few restarts in a round. Then more rounds follow, with other seeds.
async fn run_clusters(nodes: usize) {
    let mut restarts = 0;
    for batch in 0..5 {
        restarts += run_rounds(nodes, 10 * batch..10 * (batch + 1), 10).await;
        if restarts > MIN_RESTARTS {
            return;
        }
    }
    panic!("only {restarts} refusals because of a restart: too few for a result");
}

/// Checks mutual exclusion in `rounds` rounds on one cluster per seed. Returns the number of refusals because of a
/// restart.
async fn run_rounds(nodes: usize, seeds: Range<u64>, rounds: u64) -> usize {
    let on_one_cluster = |seed| async move {
        let (cluster, mut random) =
            (Arc::new(past_quarantine(nodes).await), StdRng::seed_from_u64(seed));
        let (mut restarts, mut shared) = (0, Vec::new());
        for number in 0..rounds {
            let observed = round(&cluster, &mut random).await;
            restarts += observed.restarts;
            shared.extend(observed.shared.iter().map(|what| format!("{seed}/{number}: {what}")));
        }
        (restarts, shared)
    };
    let results = join_all(seeds.map(|seed| tokio::spawn(on_one_cluster(seed)))).await;
    let (restarts, shared): (Vec<_>, Vec<_>) =
        results.into_iter().map(|result| result.expect("no panic")).unzip();
    let shared = shared.concat();
    assert!(
        shared.is_empty(),
        "two clients held the lock {} times:\n{}",
        shared.len(),
        shared.join("\n")
    );
    restarts.iter().sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_client_in_a_rolling_restart_of_three_is_refused() {
    run_clusters(3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_client_in_a_rolling_restart_of_five_is_refused() {
    run_clusters(5).await;
}
