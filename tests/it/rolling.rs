//! Nodes that are restarted one after the other, empty, while clients come that are new.
#![cfg(target_os = "linux")]

use crate::quorum::Holds;
use crate::restarts::{grow_old, old};
use crate::{builder, eventually, ms, warm_up};
use futures::future::join_all;
use kit::Cluster;
use quorlock::{AcquireError, Lease, NodeFailure, NodeVote, Redlock};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, sleep_until};

const MINUTE: Duration = Duration::from_mins(1);
/// Short, so that many rounds fit; and no node turns old within a round.
const TTL: Duration = Duration::from_secs(2);
const ROUND: Duration = Duration::from_secs(1);

/// What newcomers have seen.
#[derive(Default)]
struct Seen {
    /// Refusals, with A's lease valid, in which a node had been restarted.
    restarts: usize,
    /// What it was when two held the lock.
    shared: Vec<String>,
}

fn fresh(cluster: &Cluster) -> Redlock {
    let builder = builder(cluster).max_ttl(TTL).ttl(TTL).node_timeout(ms(500));
    builder.build().expect("good settings")
}

fn names_a_restart(refused: &AcquireError) -> bool {
    let was_restarted =
        |vote: &NodeVote| matches!(vote, NodeVote::Failed(NodeFailure::Restarted { .. }));
    let report = refused.report();
    report.is_some_and(|report| report.nodes().iter().any(|node| was_restarted(node.vote())))
}

/// A client that is new comes at `from`, and tries until it has the lock, which it keeps, or `until`.
async fn come(
    cluster: Arc<Cluster>,
    holder: Arc<Lease>,
    (from, until): (Instant, Instant),
) -> (Seen, Option<(Instant, Lease)>) {
    sleep_until(from.into()).await;
    let (redlock, mut seen) = (fresh(&cluster), Seen::default());
    while Instant::now() < until {
        match redlock.try_acquire("r").await {
            Ok(lease) => {
                let since = Instant::now();
                // In this order: both were valid when the second was looked at.
                if holder.is_valid() && lease.is_valid() {
                    seen.shared.push(format!("{:?}", lease.report()));
                }
                return (seen, Some((since, lease)));
            }
            Err(refused) => {
                let counts = holder.is_valid() && names_a_restart(&refused);
                seen.restarts += usize::from(counts);
            }
        }
        sleep(ms(10)).await;
    }
    (seen, None)
}

/// A majority is restarted, one after the other, at random moments.
async fn roll(cluster: Arc<Cluster>, mut random: StdRng) {
    let mut nodes: Vec<_> = (0..cluster.len()).collect();
    nodes.shuffle(&mut random);
    for node in nodes.drain(..=cluster.len() / 2) {
        sleep(ms(random.random_range(0..250))).await;
        let cluster = cluster.clone();
        spawn_blocking(move || cluster[node].restart()).await.expect("it comes back");
    }
}

/// A holds the lock on all nodes, a majority is restarted, and three clients come that are new.
async fn round(cluster: &Arc<Cluster>, random: &mut StdRng) -> Seen {
    // What they held has ended by then.
    grow_old(cluster).await;
    eventually("no key is left", || cluster.is_empty()).await;
    let a = fresh(cluster);
    warm_up(&a).await;
    let acquire = a.acquire("r");
    let is_kept_up = random.random_ratio(2, 3);
    let acquire = if is_kept_up { acquire.auto_extend(MINUTE) } else { acquire };
    let holder = Arc::new(acquire.await.expect("a free lock"));
    eventually("all granted", || holder.report().granted() == cluster.len()).await;
    let begun = Instant::now();
    let rolling = tokio::spawn(roll(cluster.clone(), StdRng::from_rng(random)));
    let newcomers: Vec<_> = (0..3)
        .map(|_| {
            let from = begun + ms(random.random_range(0..700));
            tokio::spawn(come(cluster.clone(), holder.clone(), (from, begun + ROUND)))
        })
        .collect();
    let (mut all, mut leases, holds) = (Seen::default(), Vec::new(), Holds::default());
    for newcomer in newcomers {
        let (seen, had) = newcomer.await.expect("no panic");
        all.restarts += seen.restarts;
        all.shared.extend(seen.shared);
        if let Some((since, lease)) = had {
            holds.note_until(since, lease.valid_until());
            leases.push(lease);
        }
    }
    let overlaps = holds.overlaps();
    if !overlaps.is_empty() {
        all.shared.push(format!("newcomers, for {overlaps:?}"));
    }
    rolling.await.expect("all come back");
    all
}

/// Plays `rounds` on each of `at_once` clusters of so many nodes.
async fn play(nodes: usize, at_once: u64, rounds: u64) {
    let on_one_cluster = |seed| async move {
        let (cluster, mut random) = (Arc::new(old(nodes).await), StdRng::seed_from_u64(seed));
        let (mut restarts, mut shared) = (0, Vec::new());
        for number in 0..rounds {
            let seen = round(&cluster, &mut random).await;
            restarts += seen.restarts;
            shared.extend(seen.shared.iter().map(|what| format!("{seed}/{number}: {what}")));
        }
        (restarts, shared)
    };
    let played = join_all((0..at_once).map(|seed| tokio::spawn(on_one_cluster(seed)))).await;
    let (restarts, shared): (Vec<_>, Vec<_>) =
        played.into_iter().map(|played| played.expect("no panic")).unzip();
    let shared = shared.concat();
    assert!(shared.is_empty(), "{} times two held it:\n{}", shared.len(), shared.join("\n"));
    let restarts: usize = restarts.iter().sum();
    assert!(restarts > 20, "newcomers saw only {restarts} restarted nodes: this shows nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_in_a_rolling_restart_of_three_nodes_is_not_let_in() {
    play(3, 10, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_in_a_rolling_restart_of_five_nodes_is_not_let_in() {
    play(5, 10, 10).await;
}
