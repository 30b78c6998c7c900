//! Tests of quorums. An attempt succeeds if and only if the lock is free on a quorum, for any number of nodes, and
//! locks exclude each other.

use crate::{SOON, builder, builder_of, eventually, ms, multi_thread};
use kit::{Cluster, Server};
use quorlock::{AcquireError, Redlock, ReleaseOutcome, RetryPolicy};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The periods in which a lock was held. All times are measured with one clock.
#[derive(Default)]
pub(crate) struct Holds(Mutex<Vec<(Instant, Instant)>>);

impl Holds {
    /// Records that the lock was held from `since` until now. Must be called before the lock is released.
    pub(crate) fn record(&self, since: Instant) {
        self.record_until(since, Instant::now());
    }

    pub(crate) fn record_until(&self, since: Instant, until: Instant) {
        self.0.lock().expect("no panic").push((since, until));
    }

    /// Returns the number of recorded periods. Panics if two of them overlap.
    pub(crate) fn assert_disjoint(&self) -> usize {
        let overlaps = self.overlaps();
        assert!(overlaps.is_empty(), "holds overlap by {overlaps:?}");
        self.0.lock().expect("no panic").len()
    }

    pub(crate) fn overlaps(&self) -> Vec<Duration> {
        let mut holds = self.0.lock().expect("no panic").clone();
        holds.sort_unstable();
        let overlap = |pair: &[(Instant, Instant)]| pair[0].1.saturating_duration_since(pair[1].0);
        holds.windows(2).map(overlap).filter(|overlap| !overlap.is_zero()).collect()
    }
}

fn client_of(servers: &[Server]) -> Redlock {
    builder_of(servers.iter().map(Server::url)).build().expect("valid settings")
}

const FOREIGN: &[u8] = b"other";

/// Checks the outcome of one attempt if another client holds the key on the servers in the bit set `mask`. The attempt
/// must succeed if and only if a quorum is free, and must not change the other client's keys.
async fn check_mask(redlock: &Redlock, servers: &[Server], mask: usize) {
    let (nodes, key) = (servers.len(), format!("{}/{mask:b}", servers.len()));
    let is_held = |node: usize| mask >> node & 1 == 1;
    let held: BTreeSet<_> = (0..nodes).filter(|node| is_held(*node)).collect();
    for node in &held {
        servers[*node].set(&key, FOREIGN);
    }
    let is_unchanged = || {
        servers.iter().enumerate().all(|(node, server)| {
            let expected = is_held(node).then_some(FOREIGN);
            server.get(&key).as_deref() == expected
        })
    };
    let attempt = redlock.try_acquire(&key).await;
    let free = nodes - held.len();
    if free > nodes / 2 {
        let lease = attempt.unwrap_or_else(|error| panic!("{key}: {error}"));
        eventually("all free nodes granted", || lease.report().granted() == free).await;
        for (node, server) in servers.iter().enumerate() {
            let own = lease.value().as_bytes();
            let expected = if is_held(node) { FOREIGN } else { own };
            assert_eq!(server.get(&key).as_deref(), Some(expected), "{key}, node {node}");
        }
        let released = lease.release().await.unwrap_or_else(|error| panic!("{key}: {error}"));
        assert_eq!(released, ReleaseOutcome::Released, "{key}");
    } else {
        let refused = attempt.expect_err("too few nodes are free");
        let AcquireError::Contended { report, .. } = &refused else { panic!("{key}: {refused}") };
        assert!(report.granted() <= free && report.needed() == nodes / 2 + 1, "{key}: {report}");
    }
    eventually("only the foreign keys are left", is_unchanged).await;
    for node in held {
        assert_eq!(servers[node].pttl(&key), -1, "{key}: the expiry on node {node} was changed");
    }
}

#[tokio::test]
async fn attempt_wins_if_and_only_if_a_quorum_is_free() {
    let cluster = Cluster::start(5);
    for nodes in 1..=5 {
        let servers = &cluster.servers()[..nodes];
        let redlock = client_of(servers);
        for mask in 0..1 << nodes {
            check_mask(&redlock, servers, mask).await;
        }
    }
    // Detects late releases: all 62 keys must still exist, each on exactly its nodes.
    let left: usize = cluster.keys_per_node().iter().map(Vec::len).sum();
    assert_eq!(left, (1..=5).map(|nodes| nodes << (nodes - 1)).sum::<usize>());
}

#[tokio::test]
async fn even_numbers_of_nodes_work_like_odd_ones() {
    let cluster = Cluster::start(6);
    for nodes in [1, 2, 4, 6] {
        let servers = &cluster.servers()[..nodes];
        let (redlock, other_client) = (client_of(servers), client_of(servers));
        for round in 0..10 {
            let lease = redlock.try_acquire("r").await.expect("the lock is free");
            assert_eq!(lease.report().needed(), nodes / 2 + 1);
            let refused = other_client.try_acquire("r").await.expect_err("it is held");
            assert!(matches!(refused, AcquireError::Contended { .. }), "{nodes}: {refused}");
            lease.extend(ms(60_000)).await.expect("the lease is held");
            if round % 2 == 0 {
                assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Released);
            } else {
                drop(lease);
            }
            // A drop does not wait, but the next attempt must follow the release.
            eventually("no key is left", || cluster.is_empty()).await;
        }
    }
}

#[tokio::test]
async fn two_nodes_need_two_and_four_need_three() {
    let cluster = Cluster::start(4);
    let (two, four) = (client_of(&cluster.servers()[2..]), client_of(cluster.servers()));
    drop(two.try_acquire("r").await.expect("both nodes are up"));
    eventually("no key is left", || cluster.is_empty()).await;

    cluster[3].kill();
    let refused = two.try_acquire("r").await.expect_err("a quorum is two of two");
    assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
    let lease = four.try_acquire("r").await.expect("a quorum is three of four");
    lease.extend(ms(60_000)).await.expect("a quorum is up");
    assert_eq!(lease.release().await.expect("a quorum is up"), ReleaseOutcome::Released);
    eventually("no key is left", || cluster.is_empty()).await;

    let lease = four.try_acquire("r").await.expect("a quorum is three of four");
    cluster[2].kill();
    let refused = lease.extend(ms(60_000)).await.expect_err("two of four nodes reply");
    assert!(matches!(refused, quorlock::ExtendError::NoQuorum { .. }), "{refused}");
    assert!(lease.is_valid(), "a failed extension does not end the lease");
    lease.release().await.expect_err("two of four nodes cannot confirm the release");
    eventually("no key is left", || cluster.is_empty()).await;
    let refused = four.try_acquire("r").await.expect_err("two of four nodes reply");
    assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
    eventually("no key is left", || cluster.is_empty()).await;
}

const ROUNDS: usize = 1_000;

struct Races {
    start: Barrier,
    holds: Holds,
    /// The first failure of a thread. Threads store the failure instead of panicking, because a panic would leave the
    /// other threads waiting at the barrier.
    failure: Mutex<Option<String>>,
}

/// In each round, acquires the lock at the same moment as the other threads. Returns the duration of each acquire.
fn race(cluster: &Cluster, races: &Races) -> Vec<Duration> {
    // The barrier blocks this thread, so another thread of the runtime must send the releases.
    multi_thread(1).block_on(async {
        let retry = RetryPolicy::jittered(ms(1)..ms(8));
        let redlock = builder(cluster).retry(retry).build().expect("valid settings");
        let mut waits = Vec::with_capacity(ROUNDS);
        loop {
            races.start.wait();
            if waits.len() == ROUNDS || races.failure.lock().expect("no panic").is_some() {
                break;
            }
            let started = Instant::now();
            match redlock.acquire("r").wait(SOON).await {
                Ok(lease) => {
                    let since = Instant::now();
                    waits.push(since - started);
                    tokio::task::yield_now().await;
                    races.holds.record(since);
                    drop(lease);
                }
                Err(error) => {
                    let failure = format!("round {}: {error}", waits.len());
                    *races.failure.lock().expect("no panic") = Some(failure);
                }
            }
        }
        redlock.close().await.expect("all nodes are up");
        waits
    })
}

/// Checks that each client acquires the lock once per round and that no two hold it at the same time. Three clients on
/// separate threads start at the same moment, so their first attempts split the votes.
#[test]
fn races_of_three_clients_have_one_winner_at_a_time() {
    let cluster = Cluster::start(5);
    let (start, holds) = (Barrier::new(3), Holds::default());
    let races = Races { start, holds, failure: Mutex::default() };
    let waits: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| race(&cluster, &races))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no failure")).collect()
    });
    assert_eq!(*races.failure.lock().expect("no panic"), None);
    let first = |round| waits.iter().map(|waits: &Vec<_>| waits[round]).min();
    let slowest = (0..ROUNDS).filter_map(first).max().expect("some rounds");
    println!("of {ROUNDS} rounds, the longest time to the first winner was {slowest:?}");
    assert!(slowest < ms(10_000), "{slowest:?}");
    assert_eq!(races.holds.assert_disjoint(), 3 * ROUNDS, "each client won once per round");
    assert!(cluster.is_empty(), "close delivers all releases");
}

/// Data that a lock protects: a counter that each holder reads and later writes.
#[derive(Default)]
struct Protected {
    counter: AtomicU64,
    holds: Holds,
}

const ADDITIONS: u64 = 25;

async fn add_under_lock(redlock: Redlock, resource: usize, protected: Arc<[Protected; 2]>) {
    let Protected { counter, holds } = &protected[resource];
    for addition in 0..ADDITIONS {
        let lease = redlock.acquire(format!("r{resource}")).wait(3 * SOON).await;
        let lease = lease.unwrap_or_else(|error| panic!("addition {addition}: {error}"));
        let since = Instant::now();
        let before = counter.load(Ordering::Relaxed);
        tokio::task::yield_now().await;
        tokio::time::sleep(ms(addition % 3)).await;
        counter.store(before + 1, Ordering::Relaxed);
        assert!(lease.is_valid());
        holds.record(since);
        match addition % 2 {
            0 => assert_eq!(lease.release().await.expect("up"), ReleaseOutcome::Released),
            _ => drop(lease),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tasks_in_several_clients_lose_no_update() {
    let cluster = Cluster::start(5);
    let protected = Arc::new(<[Protected; 2]>::default());
    let mut tasks = Vec::new();
    for _client in 0..4 {
        let retry = RetryPolicy::jittered(ms(1)..ms(15));
        let redlock = builder(&cluster).retry(retry).build().expect("valid settings");
        for task in 0..4 {
            let work = add_under_lock(redlock.clone(), task % 2, protected.clone());
            tasks.push(tokio::spawn(work));
        }
    }
    for task in tasks {
        task.await.expect("no failure");
    }
    for Protected { counter, holds } in &*protected {
        assert_eq!(counter.load(Ordering::Relaxed), 8 * ADDITIONS, "no update was lost");
        assert_eq!(holds.assert_disjoint() as u64, 8 * ADDITIONS);
    }
    eventually("no key is left", || cluster.is_empty()).await;
}
