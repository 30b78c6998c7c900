//! Tests of interoperation with Python libraries that use the same keys. A lock of such a library and a lease of this
//! library exclude each other.
//!
//! - `redis.lock.Lock` of redis-py: one server; the key is the lock's name.
//! - `pottery.Redlock`: several masters; the key is `redlock:` followed by the name.

mod environment;
mod peer;

use crate::{SOON, builder, eventually, ms};
use kit::{Cluster, Server};
use peer::Peer;
use quorlock::{AcquireError, Redlock, ReleaseOutcome, RetryPolicy};
use std::path::Path;
use std::time::Duration;

const RESOURCE: &str = "orders/42";
/// The number of acquires by each side.
const ROUNDS: usize = 200;
/// The ttl of quorlock's leases. It is longer than [`SOON`], so that a test detects a leftover key.
const TTL: Duration = Duration::from_mins(1);
/// The ttl of the other library's locks. It is short because pottery sometimes leaves a key on a minority of nodes,
/// even without quorlock: pottery returns after a quorum has replied, and its release can overtake a command to the
/// last node. Such a key blocks both sides until it expires.
const PEER_TTL: Duration = Duration::from_secs(5);
/// The ttl of a lock that expires during a test. It is longer than the node timeout.
const SHORT: Duration = Duration::from_millis(1_500);

#[derive(Clone, Copy, Debug)]
enum Library {
    RedisPy,
    Pottery,
}

impl Library {
    fn name(self) -> &'static str {
        match self {
            Self::RedisPy => "redis-py",
            Self::Pottery => "pottery",
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::RedisPy => "",
            Self::Pottery => "redlock:",
        }
    }

    /// Returns the names of the exceptions that a release and an extension raise if another client holds the lock.
    fn refusals(self) -> [&'static str; 2] {
        match self {
            Self::RedisPy => ["LockNotOwnedError", "LockNotOwnedError"],
            Self::Pottery => ["ReleaseUnlockedLock", "ExtendUnlockedLock"],
        }
    }
}

struct Scenario {
    peer: Peer,
    redlock: Redlock,
    nodes: Cluster,
    /// A server whose counter reveals two concurrent holders. It is not one of the lock's nodes.
    witness: Server,
    key: String,
}

impl Scenario {
    fn open(python: &Path, library: Library, nodes: usize, peer_ttl: Duration) -> Self {
        let (nodes, witness) = (Cluster::start(nodes), Server::start());
        let redlock = builder(&nodes)
            .ttl(TTL)
            .key_prefix(library.prefix())
            .retry(RetryPolicy::jittered(ms(1)..ms(5)))
            .build()
            .expect("valid settings");
        let ttl = peer_ttl.as_secs_f64().to_string();
        let mut arguments = vec![library.name().into(), RESOURCE.into(), ttl, witness.url()];
        arguments.extend(nodes.urls());
        let peer = Peer::start(python, &arguments);
        let key = format!("{}{RESOURCE}", library.prefix());
        Self { peer, redlock, nodes, witness, key }
    }

    /// Creates a scenario for each library, with the smallest number of nodes that the library supports. Returns an
    /// empty iterator if Python is missing.
    fn of_both_kinds(peer_ttl: Duration) -> impl Iterator<Item = (Library, Self)> {
        environment::python().into_iter().flat_map(move |python| {
            let kinds = [(Library::RedisPy, 1), (Library::Pottery, 3)].into_iter();
            kinds.map(move |(kind, nodes)| (kind, Self::open(python, kind, nodes, peer_ttl)))
        })
    }

    async fn expect_no_keys(&self) {
        eventually("no key is left", || self.nodes.is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_excludes_the_other_library_until_its_release() {
    for (_, mut scenario) in Scenario::of_both_kinds(PEER_TTL) {
        let (redlock, peer) = (&scenario.redlock, &mut scenario.peer);
        assert_eq!(peer.request("acquire 0"), "True", "the lock is free");
        let refused =
            redlock.try_acquire(RESOURCE).await.expect_err("the other library holds the lock");
        assert!(matches!(refused, AcquireError::Contended { .. }), "{refused:?}");
        assert_eq!(peer.request("owns"), "True", "the attempt left their key");
        assert_eq!(peer.request("release"), "None");

        let lease = redlock.try_acquire(RESOURCE).await.expect("their lock is released");
        assert_eq!(peer.request("acquire 0"), "False", "the lease is held");
        lease.extend(2 * TTL).await.expect("their attempt left the key");
        assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Released);

        assert_eq!(peer.request("acquire 0"), "True", "the lease is released");
        assert_eq!(peer.request("release"), "None");
        scenario.expect_no_keys().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_lease_does_not_affect_their_lock() {
    for (_, mut scenario) in Scenario::of_both_kinds(PEER_TTL) {
        let (redlock, peer) = (&scenario.redlock, &mut scenario.peer);
        let lease = redlock.acquire(RESOURCE).ttl(SHORT).await.expect("the lock is free");
        assert_eq!(peer.request("acquire 20"), "True", "the lease expired during the wait");
        assert!(!lease.is_valid(), "the validity ends before the key expires");
        lease.extend(TTL).await.expect_err("the lease has expired");
        assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::TakenOver);
        assert_eq!(peer.request("owns"), "True");
        assert_eq!(peer.request("release"), "None");
        scenario.expect_no_keys().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn their_expired_lock_does_not_affect_a_lease() {
    for (library, mut scenario) in Scenario::of_both_kinds(SHORT) {
        let (redlock, peer) = (&scenario.redlock, &mut scenario.peer);
        assert_eq!(peer.request("acquire 20"), "True");
        let lease = redlock.acquire(RESOURCE).wait(SOON).await.expect("their lock expires");
        let has_it =
            |node: &&Server| node.get(&scenario.key).as_deref() == Some(lease.value().as_bytes());
        let held: Vec<&Server> = scenario.nodes.iter().filter(has_it).collect();
        assert!(held.len() > scenario.nodes.len() / 2, "{} nodes", held.len());

        assert_eq!(peer.request("owns"), "False");
        let [release, extension] = library.refusals();
        let answer = peer.request("extend 600");
        assert!(answer.starts_with(extension), "{answer}");
        let answer = peer.request("release");
        assert!(answer.starts_with(release), "{answer}");
        assert!(held.iter().all(has_it), "the lease's keys were not deleted");
        assert!(
            held.iter().all(|node| node.pttl(&scenario.key) <= 60_000),
            "the lease's keys were not extended"
        );
        assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Released);
        scenario.expect_no_keys().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_py_and_leases_never_overlap() {
    compete(Library::RedisPy, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pottery_and_leases_never_overlap_on_three_nodes() {
    compete(Library::Pottery, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pottery_and_leases_never_overlap_on_five_nodes() {
    compete(Library::Pottery, 5).await;
}

async fn compete(library: Library, nodes: usize) {
    let Some(python) = environment::python() else { return };
    let mut scenario = Scenario::open(python, library, nodes, PEER_TTL);
    // The reply to the first command shows that Python runs before the competition begins.
    assert_eq!(scenario.peer.request("owns"), "False");
    scenario.peer.send(&format!("compete {ROUNDS}"));
    for _ in 0..ROUNDS {
        let lease =
            scenario.redlock.acquire(RESOURCE).wait(SOON).await.expect("the lock becomes free");
        hold(&scenario.witness).await;
        assert!(lease.is_valid());
        assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Released);
        tokio::time::sleep(ms(2)).await;
    }
    assert_eq!(scenario.peer.receive(), "None");

    let history = scenario.witness.get("history").expect("a history");
    let history = String::from_utf8(history).expect("letters");
    let holds = (history.matches('q').count(), history.matches('p').count());
    assert_eq!(holds, (ROUNDS, ROUNDS), "updates were lost");
    let handovers = history.matches("qp").count() + history.matches("pq").count();
    assert!(handovers >= ROUNDS / 10, "only {handovers} hand-overs: no competition");
    scenario.expect_no_keys().await;
}

/// Checks mutual exclusion while the lock is held: the counter shows no second holder, and no update of the history is
/// lost. `peer.py` makes the same checks.
async fn hold(witness: &Server) {
    assert_eq!(witness.cmd(&["INCR", "inside"]), redis::Value::Int(1), "concurrent holders");
    let mut history = witness.get("history").unwrap_or_default();
    tokio::time::sleep(ms(1)).await;
    history.push(b'q');
    witness.set("history", history);
    witness.cmd(&["DECR", "inside"]);
}
