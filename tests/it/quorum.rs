//! Who wins: a quorum of free nodes, whatever N is, and nobody else at the same time.

use crate::{SOON, builder, builder_of, eventually, ms, multi_thread};
use kit::{Cluster, Server};
use quorlock::{AcquireError, Redlock, ReleaseOutcome, RetryPolicy};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// When locks were held, on one clock: no two of them at the same time.
#[derive(Default)]
pub(crate) struct Holds(Mutex<Vec<(Instant, Instant)>>);

impl Holds {
    /// Notes a hold from `since` to now. Call it before the lock is released.
    pub(crate) fn note(&self, since: Instant) {
        self.note_until(since, Instant::now());
    }

    pub(crate) fn note_until(&self, since: Instant, until: Instant) {
        self.0.lock().expect("nobody panics with it").push((since, until));
    }

    /// How many holds there were; panics if two of them overlap.
    pub(crate) fn assert_disjoint(&self) -> usize {
        let overlaps = self.overlaps();
        assert!(overlaps.is_empty(), "two held it at the same time, for {overlaps:?}");
        self.0.lock().expect("nobody panics with it").len()
    }

    /// For how long each hold overlapped the one that began before it.
    pub(crate) fn overlaps(&self) -> Vec<Duration> {
        let mut holds = self.0.lock().expect("nobody panics with it").clone();
        holds.sort_unstable();
        let overlap = |pair: &[(Instant, Instant)]| pair[0].1.saturating_duration_since(pair[1].0);
        holds.windows(2).map(overlap).filter(|overlap| !overlap.is_zero()).collect()
    }
}

/// A client of these servers only.
fn client_of(servers: &[Server]) -> Redlock {
    builder_of(servers.iter().map(Server::url)).build().expect("good settings")
}

const FOREIGN: &[u8] = b"somebody else's";

/// One attempt at a key that others hold on the servers that `mask` names.
async fn check_mask(redlock: &Redlock, servers: &[Server], mask: usize) {
    let (nodes, key) = (servers.len(), format!("{}/{mask:b}", servers.len()));
    let is_held = |node: usize| mask >> node & 1 == 1;
    let held: BTreeSet<_> = (0..nodes).filter(|node| is_held(*node)).collect();
    for node in &held {
        servers[*node].set(&key, FOREIGN);
    }
    let is_as_before = || {
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
            let ours = lease.value().as_bytes();
            let expected = if is_held(node) { FOREIGN } else { ours };
            assert_eq!(server.get(&key).as_deref(), Some(expected), "{key}, node {node}");
        }
        let released = lease.release().await.unwrap_or_else(|error| panic!("{key}: {error}"));
        assert_eq!(released, ReleaseOutcome::Released, "{key}");
    } else {
        let refused = attempt.expect_err("too few nodes are free");
        let AcquireError::Contended { report, .. } = &refused else { panic!("{key}: {refused}") };
        assert!(report.granted() <= free && report.needed() == nodes / 2 + 1, "{key}: {report}");
    }
    eventually("only the foreign keys are left", is_as_before).await;
    for node in held {
        assert_eq!(servers[node].pttl(&key), -1, "{key}: the expiry of node {node}'s was touched");
    }
}

#[tokio::test]
async fn an_attempt_wins_if_and_only_if_a_quorum_is_free_and_leaves_foreign_keys_as_they_were() {
    let cluster = Cluster::start(5);
    for nodes in 1..=5 {
        let servers = &cluster.servers()[..nodes];
        let redlock = client_of(servers);
        for mask in 0..1 << nodes {
            check_mask(&redlock, servers, mask).await;
        }
    }
    // Late releases would touch them here: all 62 are still in place, each on exactly its nodes.
    let left: usize = cluster.keys_per_node().iter().map(Vec::len).sum();
    assert_eq!(left, (1..=5).map(|nodes| nodes << (nodes - 1)).sum::<usize>());
}

#[tokio::test]
async fn even_numbers_of_nodes_and_a_single_one_work_like_odd_ones() {
    let cluster = Cluster::start(6);
    for nodes in [1, 2, 4, 6] {
        let servers = &cluster.servers()[..nodes];
        let (ours, theirs) = (client_of(servers), client_of(servers));
        for round in 0..10 {
            let lease = ours.try_acquire("r").await.expect("a free lock");
            assert_eq!(lease.report().needed(), nodes / 2 + 1);
            let refused = theirs.try_acquire("r").await.expect_err("it is held");
            assert!(matches!(refused, AcquireError::Contended { .. }), "{nodes}: {refused}");
            lease.extend(ms(60_000)).await.expect("still held");
            if round % 2 == 0 {
                assert_eq!(lease.release().await.expect("all are up"), ReleaseOutcome::Released);
            } else {
                drop(lease);
            }
            // Dropping is not waiting: the next round's attempt has to come after the release.
            eventually("no key is left", || cluster.is_empty()).await;
        }
    }
}

#[tokio::test]
async fn with_two_nodes_both_are_needed_and_with_four_three_are() {
    let cluster = Cluster::start(4);
    let (two, four) = (client_of(&cluster.servers()[2..]), client_of(cluster.servers()));
    drop(two.try_acquire("r").await.expect("both are up"));
    eventually("no key is left", || cluster.is_empty()).await;

    cluster[3].kill();
    let refused = two.try_acquire("r").await.expect_err("one of two is no quorum");
    assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
    let lease = four.try_acquire("r").await.expect("three of four are a quorum");
    lease.extend(ms(60_000)).await.expect("three of four");
    assert_eq!(lease.release().await.expect("three of four"), ReleaseOutcome::Released);
    eventually("no key is left", || cluster.is_empty()).await;

    let lease = four.try_acquire("r").await.expect("three of four are a quorum");
    cluster[2].kill();
    let refused = lease.extend(ms(60_000)).await.expect_err("two of four are not");
    assert!(matches!(refused, quorlock::ExtendError::NoQuorum { .. }), "{refused}");
    assert!(lease.is_valid(), "a failed extension takes nothing away");
    lease.release().await.expect_err("two of four cannot say that it was held to the end");
    eventually("no key is left", || cluster.is_empty()).await;
    let refused = four.try_acquire("r").await.expect_err("two of four are no quorum");
    assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
    eventually("no key is left", || cluster.is_empty()).await;
}

const ROUNDS: usize = 1_000;

/// What the racers share.
struct Races {
    start: Barrier,
    holds: Holds,
    /// A racer that panicked would leave the others waiting at the barrier for ever.
    failure: Mutex<Option<String>>,
}

/// Acquires in each round at the same moment as the others, and says how long each took.
fn race(cluster: &Cluster, races: &Races) -> Vec<Duration> {
    // The barrier holds up this thread, and not the one that sends the releases, for which others wait.
    multi_thread(1).block_on(async {
        let retry = RetryPolicy::jittered(ms(1)..ms(8));
        let redlock = builder(cluster).retry(retry).build().expect("good settings");
        let mut waits = Vec::with_capacity(ROUNDS);
        loop {
            races.start.wait();
            if waits.len() == ROUNDS || races.failure.lock().expect("no panic").is_some() {
                break;
            }
            let begun = Instant::now();
            match redlock.acquire("r").wait(SOON).await {
                Ok(lease) => {
                    let since = Instant::now();
                    waits.push(since - begun);
                    tokio::task::yield_now().await;
                    races.holds.note(since);
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

/// Three clients on threads of their own: the split votes of such a race must settle.
#[test]
fn in_1000_races_of_three_one_wins_at_a_time_and_soon() {
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
    println!("the slowest of {ROUNDS} rounds had its first winner after {slowest:?}");
    assert!(slowest < ms(10_000), "{slowest:?}");
    assert_eq!(races.holds.assert_disjoint(), 3 * ROUNDS, "each got it once in each round");
    assert!(cluster.is_empty(), "all clients are closed, so no key is left");
}

/// What a lock protects: a counter that is read and written back later.
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
        holds.note(since);
        match addition % 2 {
            0 => assert_eq!(lease.release().await.expect("up"), ReleaseOutcome::Released),
            _ => drop(lease),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_tasks_in_four_clients_lose_no_update_of_two_counters() {
    let cluster = Cluster::start(5);
    let protected = Arc::new(<[Protected; 2]>::default());
    let mut tasks = Vec::new();
    for _client in 0..4 {
        let retry = RetryPolicy::jittered(ms(1)..ms(15));
        let redlock = builder(&cluster).retry(retry).build().expect("good settings");
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
