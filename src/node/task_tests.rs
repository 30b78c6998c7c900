//! A whole task, with a stub of a node behind it.

#[path = "faulty_stream_tests.rs"]
mod faulty_stream;

use super::super::shield::tests::node;
use super::*;
use crate::node::{Ballot, Claim, Environment, Nodes, Pool, PushSink, VoteSink};
use crate::observe::NodeState;
use crate::protocol::{NodeId, Time, Ttl};
use crate::random::Random;
use crate::transport::{Address, Stream, StubNode, Transport};
use crate::wire::{Answer, Capabilities, Keys, Requests, Value, Wants};
use faulty_stream::{Fault, Faults, FaultyTransport};
use futures::future::BoxFuture;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Hears votes, and panics over every one if it is told to.
#[derive(Default)]
struct Listener {
    panics: bool,
    votes: Mutex<Vec<String>>,
    heard: Notify,
}

impl VoteSink for Listener {
    fn handle_answer(&self, _: NodeId, answer: Answer, _: Option<Time>) {
        let said = match answer {
            Answer::Granted(_) => "granted".to_owned(),
            Answer::Failed(why) => format!("{why:?}"),
            other => format!("{other:?}"),
        };
        self.votes.lock().expect("no panic with it").push(said);
        self.heard.notify_one();
        assert!(!self.panics, "a waker of somebody's panics");
    }
}

impl Listener {
    async fn first_vote(&self) -> String {
        loop {
            if let Some(vote) = self.votes.lock().expect("no panic with it").first() {
                return vote.clone();
            }
            let soon = tokio::time::timeout(Duration::from_secs(60), self.heard.notified());
            soon.await.expect("a vote comes in time");
        }
    }
}

/// Panics whenever it is told of keys.
#[derive(Default)]
struct Nervous(AtomicUsize);

impl PushSink for Nervous {
    fn handle_push(&self, _: NodeId, _: Option<&[u8]>) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("a waker of somebody's panics");
    }

    fn handle_step(&self, _: NodeId, _: Duration, _: Time) {}
}

/// A client of the one node behind `transport`.
fn client(
    transport: Arc<dyn Transport>,
    pushes: Arc<dyn PushSink>,
) -> (Arc<NodeShared>, Arc<Nodes>) {
    let environment = Environment { transport, ..<_>::default() };
    let shared = node(environment.clone(), pushes);
    let pool = Pool::new([shared.clone()].into(), None, environment);
    (shared, pool.here().expect("a runtime"))
}

fn claim(key: &str) -> Arc<Claim> {
    let value = Value::fresh(&Random::Machine);
    Arc::new(Claim::new(Keys::one(key.as_bytes().into()), value, 1))
}

fn acquire(nodes: &Nodes, claim: &Arc<Claim>, listener: &Arc<Listener>) {
    let ttl = Ttl::from_duration(Duration::from_secs(60)).expect("a good ttl");
    nodes.send_each(|node| {
        let ballot = Ballot::new(listener.clone(), node);
        QueuedCommand::acquire(claim.clone(), ttl, Wants::Nothing, ballot)
    });
}

fn release(nodes: &Nodes, claim: &Arc<Claim>, listener: &Arc<Listener>) {
    claim.withdraw();
    nodes.send_each(|node| {
        QueuedCommand::release(claim.clone(), Some(Ballot::new(listener.clone(), node)))
    });
}

#[tokio::test]
async fn a_waker_that_panics_takes_no_other_order_with_it() {
    let server = StubNode::new();
    let pushes = Arc::<Nervous>::default();
    let (shared, nodes) = client(server.clone(), pushes.clone());
    let claims = ["a", "b", "c"].map(claim);
    let listeners =
        || [true, false, true].map(|panics| Arc::new(Listener { panics, ..<_>::default() }));
    // They are written as one pipeline, as soon as there is a connection.
    let acquired = listeners();
    claims.iter().zip(&acquired).for_each(|(claim, listener)| acquire(&nodes, claim, listener));
    for listener in &acquired {
        assert_eq!(listener.first_vote().await, "granted");
    }
    assert_eq!(server.keys(), [b"a", b"b", b"c"]);
    let released = listeners();
    claims.iter().zip(&released).for_each(|(claim, listener)| release(&nodes, claim, listener));
    for listener in &released {
        assert_eq!(listener.first_vote().await, "granted");
    }
    assert!(server.keys().is_empty());
    assert_eq!(shared.pending_releases(), 0, "nothing is owed any more");
    assert!(nodes.is_open(), "the task has served it all");
    let told = pushes.0.load(Ordering::Relaxed);
    assert_eq!(told, 1, "of the one connection that has served it all, and that panicked");
}

/// Nobody waits for keys.
struct Nobody;

impl PushSink for Nobody {
    fn handle_push(&self, _: NodeId, _: Option<&[u8]>) {}
    fn handle_step(&self, _: NodeId, _: Duration, _: Time) {}
}

/// What becomes of an acquire of `key`.
async fn try_acquire(nodes: &Nodes, key: &str) -> (Arc<Claim>, String) {
    let (claim, listener) = (claim(key), Arc::<Listener>::default());
    acquire(nodes, &claim, &listener);
    (claim, listener.first_vote().await)
}

/// The node serves again, by one connection, and is owed nothing.
async fn assert_is_served(shared: &NodeShared, nodes: &Nodes, server: &StubNode) {
    let (claim, vote) = try_acquire(nodes, "last").await;
    assert_eq!(vote, "granted");
    let listener = Arc::default();
    release(nodes, &claim, &listener);
    assert_eq!(listener.first_vote().await, "granted");
    let none_owed = async {
        while shared.pending_releases() > 0 || !server.keys().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let none_owed = tokio::time::timeout(Duration::from_secs(60), none_owed).await;
    none_owed.unwrap_or_else(|_| panic!("{} are owed", shared.pending_releases()));
    assert_eq!(shared.connections.load(Ordering::Relaxed), 1);
    assert_eq!(shared.status().0, NodeState::Up);
    assert!(nodes.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_panics_ends_its_connection_and_nothing_else() {
    for (fault, becomes) in [
        // It is read before anything is written, and what was not written waits for the next.
        (Fault::Reading, "granted"),
        (Fault::Writing, "Disconnected(\"panicked: no bytes today\")"),
        // A connection that cannot even end is no blip.
        (Fault::Dropped, "Disconnected(\"panicked: no end today\")"),
    ] {
        let faults = Faults::new();
        let (shared, nodes) = client(Arc::new(FaultyTransport(faults.clone())), Arc::new(Nobody));
        let (kept, vote) = try_acquire(&nodes, "kept").await;
        assert_eq!(vote, "granted");
        // Else the node has dropped us at once, and is left alone for a while.
        tokio::time::sleep(Duration::from_secs(10)).await;
        faults.strike(fault);
        let (given_up, vote) = try_acquire(&nodes, "given up").await;
        assert!(faults.has_struck());
        assert_eq!(vote, becomes, "{fault:?}");
        for claim in [kept, given_up] {
            release(&nodes, &claim, &Arc::default());
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_is_served(&shared, &nodes, &faults.server).await;
        assert_eq!(faults.server.addresses().len(), 2, "{fault:?}: it was replaced once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_making_panics_could_not_be_made_and_is_tried_again() {
    let faults = Faults::new();
    let (shared, nodes) = client(Arc::new(FaultyTransport(faults.clone())), Arc::new(Nobody));
    faults.strike(Fault::Connecting);
    let (_, vote) = try_acquire(&nodes, "k").await;
    assert_eq!(vote, "Unreachable(\"panicked: no stream today\")");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_is_served(&shared, &nodes, &faults.server).await;
}

#[tokio::test(start_paused = true)]
async fn a_second_connection_whose_making_panics_does_not_end_the_first() {
    let faults = Faults::new();
    let (shared, nodes) = client(Arc::new(FaultyTransport(faults.clone())), Arc::new(Nobody));
    let (claim, vote) = try_acquire(&nodes, "k").await;
    assert_eq!(vote, "granted");
    faults.is_silent.store(true, Ordering::Relaxed);
    faults.strike(Fault::Connecting);
    release(&nodes, &claim, &Arc::default());
    while !faults.has_struck() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    faults.is_silent.store(false, Ordering::Relaxed);
    assert_is_served(&shared, &nodes, &faults.server).await;
    assert_eq!(faults.server.addresses().len(), 1, "the first has answered after all");
}

#[tokio::test(start_paused = true)]
async fn unanswered_release_fails_its_vote_and_is_repeated() {
    for (ends, failure) in [(true, "Disconnected"), (false, "Stalled")] {
        let faults = Faults::new();
        let (shared, nodes) = client(Arc::new(FaultyTransport(faults.clone())), Arc::new(Nobody));
        let (claim, vote) = try_acquire(&nodes, "k").await;
        assert_eq!(vote, "granted");
        // A connection that has lasted is replaced at once.
        tokio::time::sleep(Duration::from_secs(10)).await;
        faults.ends_when_cut.store(ends, Ordering::Relaxed);
        faults.cut_before.store(2, Ordering::Relaxed);
        let listener = Arc::<Listener>::default();
        release(&nodes, &claim, &listener);
        // The answer to the repeated release cannot say whether the first one has deleted the key.
        let vote = listener.first_vote().await;
        assert!(vote.starts_with(failure), "{vote}");
        assert_is_served(&shared, &nodes, &faults.server).await;
        assert_eq!(faults.server.addresses().len(), 2, "{failure}");
    }
}

struct Nowhere;

impl Transport for Nowhere {
    fn connect<'a>(&'a self, _: &'a Address) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(std::future::pending())
    }
}

#[test]
fn an_extension_that_nobody_can_write_any_more_has_failed() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (shared, nodes) = runtime.block_on(async {
        let made = client(Arc::new(Nowhere), Arc::<Nervous>::default());
        tokio::time::sleep(Duration::from_millis(50)).await;
        made
    });
    let listener = Arc::<Listener>::default();
    let claim = claim("k");
    let until = shared.now().after(Duration::from_secs(60));
    nodes.send_each(|node| {
        QueuedCommand::extend(claim.clone(), until, false, Ballot::new(listener.clone(), node))
    });
    drop(runtime);
    assert!(!nodes.is_open(), "the only task is gone");
    assert_eq!(*listener.votes.lock().expect("no panic"), ["ShutDown"]);
}

#[tokio::test]
async fn of_what_a_task_leaves_others_take_extensions_and_no_repairs() {
    let (shared, _nodes) = client(Arc::new(Nowhere), Arc::<Nervous>::default());
    // There is a task that could take it.
    assert!(shared.handover.is_served());
    let claim = claim("k");
    let until = shared.now().after(Duration::from_secs(60));
    let listener = Arc::<Listener>::default();
    shared.rescue(QueuedCommand::repair(claim.clone(), until));
    assert!(shared.handover.take_all().is_empty(), "the lease's release may come before it");
    let ballot = Ballot::new(listener.clone(), shared.id);
    shared.rescue(QueuedCommand::extend(claim.clone(), until, false, ballot));
    assert_eq!(shared.handover.take_all().len(), 1);
}

#[tokio::test]
async fn written_release_of_a_lost_task_fails_its_vote_and_is_left_to_others() {
    let (shared, _nodes) = client(Arc::new(Nowhere), Arc::<Nervous>::default());
    let (claim, listener) = (claim("k"), Arc::<Listener>::default());
    let ballot = || Ballot::new(listener.clone(), shared.id);
    let acquire = QueuedCommand::acquire(claim.clone(), Ttl::SHORTEST, Wants::Nothing, ballot());
    let release = QueuedCommand::release(claim, Some(ballot()));
    let [_acquire, release] = [acquire, release].map(|mut command| {
        let mut requests = Requests::default();
        assert!(command.write(shared.id, shared.now(), Capabilities::default(), &mut requests));
        command
    });
    shared.rescue(release);
    assert_eq!(*listener.votes.lock().expect("no panic"), ["ShutDown"]);
    assert_eq!(shared.handover.take_all().len(), 1);
}
