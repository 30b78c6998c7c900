//! Other libraries on the same keys, in Python: a lease and a lock of theirs exclude each other.
//!
//! - `redis.lock.Lock` of redis-py: one server, the key is the lock's name.
//! - `pottery.Redlock`: several masters, the key is `redlock:` and the name.

mod environment;
mod peer;

use crate::{SOON, builder, eventually, ms};
use kit::{Cluster, Server};
use peer::Peer;
use quorlock::{AcquireError, Redlock, ReleaseOutcome, RetryPolicy};
use std::path::Path;
use std::time::Duration;

const RESOURCE: &str = "orders/42";
/// How often each side wins a contest.
const ROUNDS: usize = 200;
/// Our ttl. A key of ours that is left behind is found: it stays for longer than [`SOON`].
const OURS: Duration = Duration::from_mins(1);
/// Their ttl. Now and then pottery leaves a key on a minority of the nodes, with or without us: it
/// returns when most have answered, so its release can overtake what the last one is still to be
/// sent. Such a key is in the way of both sides until it expires.
const THEIRS: Duration = Duration::from_secs(5);
/// The ttl of a lock that expires in a test; longer than the node timeout.
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

    /// What the library puts before the name of a lock.
    fn prefix(self) -> &'static str {
        match self {
            Self::RedisPy => "",
            Self::Pottery => "redlock:",
        }
    }

    /// What it raises when somebody else holds the lock: from a release, and from an extension.
    fn refusals(self) -> [&'static str; 2] {
        match self {
            Self::RedisPy => ["LockNotOwnedError", "LockNotOwnedError"],
            Self::Pottery => ["ReleaseUnlockedLock", "ExtendUnlockedLock"],
        }
    }
}

/// Both sides, on the same nodes and the same keys.
struct Scene {
    theirs: Peer,
    ours: Redlock,
    nodes: Cluster,
    /// Tells whether both sides are in at the same time; no node of the lock.
    witness: Server,
    key: String,
}

impl Scene {
    fn open(python: &Path, library: Library, nodes: usize, their_ttl: Duration) -> Self {
        let (nodes, witness) = (Cluster::start(nodes), Server::start());
        let ours = builder(&nodes)
            .ttl(OURS)
            .key_prefix(library.prefix())
            .retry(RetryPolicy::jittered(ms(1)..ms(5)))
            .build()
            .expect("good settings");
        let ttl = their_ttl.as_secs_f64().to_string();
        let mut arguments = vec![library.name().into(), RESOURCE.into(), ttl, witness.url()];
        arguments.extend(nodes.urls());
        let theirs = Peer::start(python, &arguments);
        let key = format!("{}{RESOURCE}", library.prefix());
        Self { theirs, ours, nodes, witness, key }
    }

    /// One of each kind, on as few nodes as make sense; none where there is no Python.
    fn of_both_kinds(their_ttl: Duration) -> impl Iterator<Item = (Library, Self)> {
        environment::python().into_iter().flat_map(move |python| {
            let kinds = [(Library::RedisPy, 1), (Library::Pottery, 3)].into_iter();
            kinds.map(move |(kind, nodes)| (kind, Self::open(python, kind, nodes, their_ttl)))
        })
    }

    async fn nothing_is_left(&self) {
        eventually("no key is left", || self.nodes.is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_holds_it_keeps_the_other_out_until_the_release() {
    for (_, mut scene) in Scene::of_both_kinds(THEIRS) {
        let (ours, theirs) = (&scene.ours, &mut scene.theirs);
        assert_eq!(theirs.ask("acquire 0"), "True", "a free lock");
        let refused = ours.try_acquire(RESOURCE).await.expect_err("they hold it");
        assert!(matches!(refused, AcquireError::Contended { .. }), "{refused:?}");
        assert_eq!(theirs.ask("owns"), "True", "the attempt took nothing away");
        assert_eq!(theirs.ask("release"), "None");

        let lease = ours.try_acquire(RESOURCE).await.expect("free after their release");
        assert_eq!(theirs.ask("acquire 0"), "False", "we hold it");
        lease.extend(2 * OURS).await.expect("their attempt took nothing away");
        assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Released);

        assert_eq!(theirs.ask("acquire 0"), "True", "free after our release");
        assert_eq!(theirs.ask("release"), "None");
        scene.nothing_is_left().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_lease_leaves_the_lock_of_others_alone() {
    for (_, mut scene) in Scene::of_both_kinds(THEIRS) {
        let (ours, theirs) = (&scene.ours, &mut scene.theirs);
        let lease = ours.acquire(RESOURCE).ttl(SHORT).await.expect("a free lock");
        assert_eq!(theirs.ask("acquire 20"), "True", "it was waited for, and expired");
        assert!(!lease.is_valid(), "it ended before they had it");
        lease.extend(OURS).await.expect_err("it has ended");
        assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::TakenOver);
        assert_eq!(theirs.ask("owns"), "True");
        assert_eq!(theirs.ask("release"), "None");
        scene.nothing_is_left().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_lock_of_others_leaves_a_lease_alone() {
    for (library, mut scene) in Scene::of_both_kinds(SHORT) {
        let (ours, theirs) = (&scene.ours, &mut scene.theirs);
        assert_eq!(theirs.ask("acquire 20"), "True");
        let lease = ours.acquire(RESOURCE).wait(SOON).await.expect("theirs expires");
        let has_it =
            |node: &&Server| node.get(&scene.key).as_deref() == Some(lease.value().as_bytes());
        let held: Vec<&Server> = scene.nodes.iter().filter(has_it).collect();
        assert!(held.len() > scene.nodes.len() / 2, "{} nodes", held.len());

        assert_eq!(theirs.ask("owns"), "False");
        let [release, extension] = library.refusals();
        let answer = theirs.ask("extend 600");
        assert!(answer.starts_with(extension), "{answer}");
        let answer = theirs.ask("release");
        assert!(answer.starts_with(release), "{answer}");
        assert!(held.iter().all(has_it), "nothing of ours was deleted");
        assert!(held.iter().all(|node| node.pttl(&scene.key) <= 60_000), "or extended");
        assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Released);
        scene.nothing_is_left().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_rounds_against_redis_py_never_overlap() {
    contest(Library::RedisPy, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_rounds_against_pottery_on_three_nodes_never_overlap() {
    contest(Library::Pottery, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_rounds_against_pottery_on_five_nodes_never_overlap() {
    contest(Library::Pottery, 5).await;
}

/// Both sides want the same lock at the same time, until each has had it [`ROUNDS`] times.
async fn contest(library: Library, nodes: usize) {
    let Some(python) = environment::python() else { return };
    let mut scene = Scene::open(python, library, nodes, THEIRS);
    // An order of its own, so that Python runs when the contest begins.
    assert_eq!(scene.theirs.ask("owns"), "False");
    scene.theirs.tell(&format!("compete {ROUNDS}"));
    for _ in 0..ROUNDS {
        let lease = scene.ours.acquire(RESOURCE).wait(SOON).await.expect("our turn comes");
        tenure(&scene.witness).await;
        assert!(lease.is_valid());
        assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Released);
        tokio::time::sleep(ms(2)).await;
    }
    assert_eq!(scene.theirs.answer(), "None");

    let history = scene.witness.get("history").expect("a history");
    let history = String::from_utf8(history).expect("letters");
    let tenures = (history.matches('q').count(), history.matches('p').count());
    assert_eq!(tenures, (ROUNDS, ROUNDS), "updates were lost");
    let handovers = history.matches("qp").count() + history.matches("pq").count();
    assert!(handovers >= ROUNDS / 10, "they did not compete: {handovers} hand-overs");
    scene.nothing_is_left().await;
}

/// Exclusion, exactly: nobody else is inside, and no letter of the history gets lost. The same as
/// in `peer.py`.
async fn tenure(witness: &Server) {
    assert_eq!(witness.cmd(&["INCR", "inside"]), redis::Value::Int(1), "holders at once");
    let mut history = witness.get("history").unwrap_or_default();
    tokio::time::sleep(ms(1)).await;
    history.push(b'q');
    witness.set("history", history);
    witness.cmd(&["DECR", "inside"]);
}
