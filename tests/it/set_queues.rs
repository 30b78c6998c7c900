//! Tests of the cost and order of acquires that wait for several locks. The nodes are in-process and tokio's clock is
//! paused, so the tests can count every step.
//!
//! The retry delay exceeds each test, so an acquire that is not notified fails its test.

use crate::{MAX_TTL, SOON, ms};
use futures::FutureExt;
use quorlock::test_util::waiter_checks;
use quorlock::{Acquire, Lease, Redlock, ReleaseOutcome, RetryPolicy};
use quorlock_test::{Nodes, pending_work};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Creates a client whose acquires only try again after a notification.
fn client_without_retries(nodes: &Nodes) -> Redlock {
    let never = RetryPolicy::fixed(Duration::from_mins(10));
    let builder = nodes.client().ttl(MAX_TTL).max_ttl(MAX_TTL).node_timeout(ms(500));
    builder.retry(never).wait(SOON).build().expect("valid settings")
}

struct Counted<F>(Pin<Box<F>>, Arc<AtomicUsize>);

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.as_mut().poll(cx)
    }
}

/// Acquires that wait for several locks, in the order in which they started.
struct Waiters {
    redlock: Redlock,
    polls: Arc<AtomicUsize>,
    waiting: Vec<JoinHandle<Lease>>,
}

impl Waiters {
    /// Spawns one acquire per pair of locks. Waits until an acquire has been refused before it spawns the next one.
    async fn wait_for(redlock: &Redlock, pairs: impl IntoIterator<Item = [String; 2]>) -> Self {
        let (polls, waiting) = (Arc::<AtomicUsize>::default(), Vec::new());
        let mut waiters = Self { redlock: redlock.clone(), polls, waiting };
        for pair in pairs {
            let acquire = Box::pin(redlock.acquire_all(&pair).into_future());
            let counted = Counted(acquire, waiters.polls.clone());
            let lease = async move { counted.await.expect("the acquire is notified in time") };
            waiters.waiting.push(tokio::spawn(lease));
            sleep(ms(20)).await;
        }
        assert!(pending_work(redlock).waiters >= waiters.waiting.len(), "all acquires wait");
        waiters
    }

    /// Runs `act` and returns the cost of its consequences: the number of checked waiters and the number of polls.
    async fn cost(&self, act: impl AsyncFnOnce()) -> (u64, usize) {
        let counts = || (waiter_checks(&self.redlock), self.polls.load(Ordering::SeqCst));
        let before = counts();
        act().await;
        sleep(ms(50)).await;
        let after = counts();
        (after.0 - before.0, after.1 - before.1)
    }

    /// Returns the lease of the acquire that has succeeded. Panics unless exactly one acquire has.
    async fn winner(&mut self) -> Lease {
        let mut done = self.waiting.iter().enumerate().filter(|(_, one)| one.is_finished());
        let (index, None) = (done.next().expect("an acquire has succeeded").0, done.next()) else {
            panic!("two acquires have succeeded");
        };
        self.waiting.remove(index).await.expect("no panic")
    }

    /// Waits until every acquire has succeeded, one after another, and releases each lease. Panics if a release does
    /// not lead to the next lease.
    async fn drain(mut self) {
        while !self.waiting.is_empty() {
            assert_eq!(self.winner().await.release().await, Ok(ReleaseOutcome::Released));
            sleep(ms(20)).await;
        }
    }
}

/// The maximum number of waiters that a release may check, however many acquires wait. `MAX_POLLS` is the maximum
/// number of polls.
const MAX_CHECKS: u64 = 12;
const MAX_POLLS: usize = 24;

fn shared_and_own(count: usize) -> impl Iterator<Item = [String; 2]> {
    (0..count).map(|index| ["c".into(), format!("own-{index}")])
}

#[tokio::test(start_paused = true)]
async fn cost_of_a_release_does_not_grow_with_waiting_sets() {
    for count in [4, 64, 256] {
        let nodes = Nodes::start(5);
        let redlock = client_without_retries(&nodes);
        let held = redlock.acquire("c").await.expect("the lock is free");
        let mut waiters = Waiters::wait_for(&redlock, shared_and_own(count)).await;
        let release = async || assert!(held.release().await.is_ok());
        let first = waiters.cost(release).await;
        let lease = waiters.winner().await;
        let release = async || assert!(lease.release().await.is_ok());
        let second = waiters.cost(release).await;
        for (checks, polls) in [first, second] {
            assert!(
                checks <= MAX_CHECKS && polls <= MAX_POLLS,
                "{count}: {checks} checks, {polls} polls"
            );
        }
        let before = waiter_checks(&redlock);
        waiters.drain().await;
        let each = (waiter_checks(&redlock) - before) / u64::try_from(count).expect("few");
        assert!(each <= MAX_CHECKS, "{count}: {each} checks per waiter");
    }
}

#[tokio::test(start_paused = true)]
async fn cost_of_a_push_does_not_grow_with_waiting_sets() {
    for count in [4, 256] {
        let nodes = Nodes::start(5);
        let redlock = client_without_retries(&nodes);
        nodes.hold("c", MAX_TTL);
        let waiters = Waiters::wait_for(&redlock, shared_and_own(count)).await;
        let (checks, polls) = waiters.cost(async || nodes.remove("c")).await;
        assert!(
            checks <= MAX_CHECKS && polls <= MAX_POLLS,
            "{count}: {checks} checks, {polls} polls"
        );
        waiters.drain().await;
    }
}

/// Spawns `count` acquires that wait in separate queues. Each acquire wants its own key, which the first of three nodes
/// refuses, and a common key, which the second node refuses. The third node grants.
async fn in_separate_queues(nodes: &Nodes, redlock: &Redlock, count: usize) -> Waiters {
    nodes.only(1).hold("z", MAX_TTL);
    for index in 0..count {
        nodes.only(0).hold(format!("own-{index}"), MAX_TTL);
    }
    let pairs = (0..count).map(|index| [format!("own-{index}"), "z".into()]);
    Waiters::wait_for(redlock, pairs).await
}

#[tokio::test(start_paused = true)]
async fn sets_in_other_queues_are_notified_one_by_one() {
    for count in [4, 64] {
        let nodes = Nodes::start(3);
        let redlock = client_without_retries(&nodes);
        let waiters = in_separate_queues(&nodes, &redlock, count).await;
        let (checks, polls) = waiters.cost(async || nodes.remove("z")).await;
        assert!(
            checks <= MAX_CHECKS && polls <= MAX_POLLS,
            "{count}: {checks} checks, {polls} polls"
        );
        waiters.drain().await;
    }
}

#[tokio::test(start_paused = true)]
async fn refused_set_notifies_the_next_one() {
    let nodes = Nodes::start(3);
    let redlock = client_without_retries(&nodes);
    let mut waiters = in_separate_queues(&nodes, &redlock, 8).await;
    for index in 0..7 {
        nodes.only(1..).hold(format!("own-{index}"), MAX_TTL);
    }
    nodes.remove("z");
    sleep(ms(100)).await;
    let last = waiters.waiting.pop().expect("eight acquires wait");
    assert!(last.is_finished(), "the other acquires were refused");
    let last = last.await.expect("no panic");
    for index in 0..7 {
        nodes.remove(format!("own-{index}"));
    }
    sleep(ms(100)).await;
    assert!(
        waiters.waiting.iter().all(|one| !one.is_finished()),
        "the last acquire holds the common key"
    );
    assert_eq!(last.release().await, Ok(ReleaseOutcome::Released));
    sleep(ms(50)).await;
    waiters.drain().await;
}

/// Creates an acquire that was notified of the common key's deletion but has not been polled since. Returns this
/// acquire and three acquires that wait in other queues until it has had its turn.
async fn notified_but_not_polled(nodes: &Nodes, redlock: &Redlock) -> (Pin<Box<Acquire>>, Waiters) {
    nodes.only(1).hold("z", MAX_TTL);
    nodes.only(0).hold("first", MAX_TTL);
    let mut first = Box::pin(redlock.acquire_all(["first", "z"]));
    for _ in 0..20 {
        assert!((&mut first).now_or_never().is_none());
        sleep(ms(1)).await;
    }
    let waiters = in_separate_queues(nodes, redlock, 3).await;
    nodes.remove("z");
    sleep(ms(20)).await;
    assert!(waiters.waiting.iter().all(|one| !one.is_finished()), "the first acquire has the turn");
    (first, waiters)
}

#[tokio::test(start_paused = true)]
async fn dropped_set_notifies_the_next_one() {
    let nodes = Nodes::start(3);
    let redlock = client_without_retries(&nodes);
    let (first, waiters) = notified_but_not_polled(&nodes, &redlock).await;
    drop(first);
    sleep(ms(20)).await;
    waiters.drain().await;
}

#[tokio::test(start_paused = true)]
async fn untaken_lease_of_a_set_is_revoked_for_sets_in_other_queues() {
    let nodes = Nodes::start(3);
    let redlock = client_without_retries(&nodes);
    let (first, waiters) = notified_but_not_polled(&nodes, &redlock).await;
    sleep(ms(1_000)).await;
    assert!(waiters.waiting.iter().all(|one| !one.is_finished()), "the limit has not passed");
    sleep(ms(2_000)).await;
    waiters.drain().await;
    let lease = first.await.expect("its next attempt succeeds");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
}

/// Checks that a notified acquire does not block other acquires while it must wait for another key. That key stays
/// unavailable for a cool-down.
#[tokio::test(start_paused = true)]
async fn notified_set_that_must_wait_does_not_block_others() {
    let nodes = Nodes::start(5);
    let redlock = client_without_retries(&nodes);
    let held = redlock.acquire("kept").ttl(MAX_TTL / 2).await.expect("the lock is free");
    nodes.only(3).hold("z", MAX_TTL);
    let own_keys = ["first", "own-0", "own-1"];
    for own in own_keys {
        nodes.only(..2).hold(own, MAX_TTL);
    }
    let first = tokio::spawn(redlock.acquire_all(["first", "kept", "z"]).into_future());
    sleep(ms(20)).await;
    let pairs = own_keys[1..].iter().map(|own| [(*own).into(), "z".into()]);
    let waiters = Waiters::wait_for(&redlock, pairs).await;
    assert_eq!(held.release_after(ms(5_000)).await, Ok(ReleaseOutcome::Released));
    nodes.remove("z");
    sleep(ms(20)).await;
    waiters.drain().await;
    assert!(!first.is_finished(), "the cool-down runs");
    let lease =
        first.await.expect("no panic").expect("the acquire is notified after the cool-down");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
}

#[tokio::test(start_paused = true)]
async fn key_named_after_the_refusal_is_watched() {
    let nodes = Nodes::start(5);
    let redlock = client_without_retries(&nodes);
    assert_eq!(
        redlock.acquire("warm-up").await.expect("free").release().await,
        Ok(ReleaseOutcome::Released)
    );
    nodes.only(..2).hold("a", MAX_TTL);
    nodes.only(2..).hold("b", MAX_TTL);
    // Three nodes refuse before the other two reply.
    nodes.only(..3).delay(ms(50));
    nodes.only(3..).delay(ms(100));
    let waiting = tokio::spawn(redlock.acquire_all(["a", "b"]).into_future());
    sleep(ms(1_000)).await;
    nodes.remove("b");
    let lease = waiting.await.expect("no panic").expect("three nodes are free");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
}
