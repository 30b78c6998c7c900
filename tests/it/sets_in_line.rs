//! What it costs that many wait for several resources, and who of them is told. The nodes are in the process and time is
//! tokio's, so that everything can be counted.
//!
//! Nobody tries again by a timer here: whoever is not told does not get its locks in time.

use crate::{MAX_TTL, SOON, ms};
use futures::FutureExt;
use quorlock::test_util::waiter_checks;
use quorlock::{Acquire, Lease, Redlock, RetryPolicy};
use quorlock_test::{Nodes, pending_work};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// A client that tries again when it is told, and not before the end.
fn patient(nodes: &Nodes) -> Redlock {
    let never = RetryPolicy::fixed(Duration::from_mins(10));
    let builder = nodes.client().ttl(MAX_TTL).max_ttl(MAX_TTL).node_timeout(ms(500));
    builder.retry(never).wait(SOON).build().expect("good settings")
}

/// Counts how often a future is polled.
struct Counted<F>(Pin<Box<F>>, Arc<AtomicUsize>);

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.as_mut().poll(cx)
    }
}

/// Those who wait for several locks, one after the other.
struct Crowd {
    redlock: Redlock,
    polls: Arc<AtomicUsize>,
    waiting: Vec<JoinHandle<Lease>>,
}

impl Crowd {
    /// Each wants these two, and was refused before the next comes.
    async fn wait_for(redlock: &Redlock, pairs: impl IntoIterator<Item = [String; 2]>) -> Self {
        let (polls, waiting) = (Arc::<AtomicUsize>::default(), Vec::new());
        let mut crowd = Self { redlock: redlock.clone(), polls, waiting };
        for pair in pairs {
            let acquire = Box::pin(redlock.acquire_all(&pair).into_future());
            let counted = Counted(acquire, crowd.polls.clone());
            let lease = async move { counted.await.expect("it is told, and in time") };
            crowd.waiting.push(tokio::spawn(lease));
            sleep(ms(20)).await;
        }
        assert!(pending_work(redlock).waiters >= crowd.waiting.len(), "all wait");
        crowd
    }

    /// What `act` costs until all is quiet again: how many waiters are looked at, and how often one is polled.
    async fn cost(&self, act: impl AsyncFnOnce()) -> (u64, usize) {
        let counts = || (waiter_checks(&self.redlock), self.polls.load(Ordering::SeqCst));
        let before = counts();
        act().await;
        sleep(ms(50)).await;
        let after = counts();
        (after.0 - before.0, after.1 - before.1)
    }

    /// The lease of the one that has its locks.
    async fn winner(&mut self) -> Lease {
        let mut done = self.waiting.iter().enumerate().filter(|(_, one)| one.is_finished());
        let (index, None) = (done.next().expect("one has its locks").0, done.next()) else {
            panic!("two have them");
        };
        self.waiting.remove(index).await.expect("no panic")
    }

    /// Lets one after the other have its locks.
    async fn drain(mut self) {
        while !self.waiting.is_empty() {
            self.winner().await.release().await.expect("nodes are up");
            sleep(ms(20)).await;
        }
    }
}

/// What each release may cost, however many wait.
const MOST_LOOKS: u64 = 12;
const MOST_POLLS: usize = 24;

fn shared_and_own(count: usize) -> impl Iterator<Item = [String; 2]> {
    (0..count).map(|index| ["c".into(), format!("own-{index}")])
}

#[tokio::test(start_paused = true)]
async fn what_a_release_costs_does_not_grow_with_the_sets_that_wait() {
    for count in [4, 64, 256] {
        let nodes = Nodes::start(5);
        let redlock = patient(&nodes);
        let held = redlock.acquire("c").await.expect("a free lock");
        let mut crowd = Crowd::wait_for(&redlock, shared_and_own(count)).await;
        let release = async || assert!(held.release().await.is_ok());
        let first = crowd.cost(release).await;
        let lease = crowd.winner().await;
        let release = async || assert!(lease.release().await.is_ok());
        let second = crowd.cost(release).await;
        for (looks, polls) in [first, second] {
            assert!(
                looks <= MOST_LOOKS && polls <= MOST_POLLS,
                "{count}: {looks} looks, {polls} polls"
            );
        }
        let before = waiter_checks(&redlock);
        crowd.drain().await;
        let each = (waiter_checks(&redlock) - before) / u64::try_from(count).expect("few");
        assert!(each <= MOST_LOOKS, "{count}: {each} looks for each");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_push_costs_does_not_grow_with_the_sets_that_wait() {
    for count in [4, 256] {
        let nodes = Nodes::start(5);
        let redlock = patient(&nodes);
        nodes.hold("c", MAX_TTL);
        let crowd = Crowd::wait_for(&redlock, shared_and_own(count)).await;
        let (looks, polls) = crowd.cost(async || nodes.remove("c")).await;
        assert!(
            looks <= MOST_LOOKS && polls <= MOST_POLLS,
            "{count}: {looks} looks, {polls} polls"
        );
        crowd.drain().await;
    }
}

/// So many sets that stand in lines of their own: of three nodes the first names what only this set wants, the second what
/// all want, and the third grants.
async fn in_lines_of_their_own(nodes: &Nodes, redlock: &Redlock, count: usize) -> Crowd {
    nodes.only(1).hold("z", MAX_TTL);
    for index in 0..count {
        nodes.only(0).hold(format!("own-{index}"), MAX_TTL);
    }
    let pairs = (0..count).map(|index| [format!("own-{index}"), "z".into()]);
    Crowd::wait_for(redlock, pairs).await
}

#[tokio::test(start_paused = true)]
async fn of_those_in_other_lines_one_is_told_and_then_the_next() {
    for count in [4, 64] {
        let nodes = Nodes::start(3);
        let redlock = patient(&nodes);
        let crowd = in_lines_of_their_own(&nodes, &redlock, count).await;
        let (looks, polls) = crowd.cost(async || nodes.remove("z")).await;
        assert!(
            looks <= MOST_LOOKS && polls <= MOST_POLLS,
            "{count}: {looks} looks, {polls} polls"
        );
        crowd.drain().await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_was_told_and_is_refused_for_another_tells_the_next() {
    let nodes = Nodes::start(3);
    let redlock = patient(&nodes);
    let mut crowd = in_lines_of_their_own(&nodes, &redlock, 8).await;
    for index in 0..7 {
        nodes.only(1..).hold(format!("own-{index}"), MAX_TTL);
    }
    nodes.remove("z");
    sleep(ms(100)).await;
    let last = crowd.waiting.pop().expect("eight wait");
    assert!(last.is_finished(), "all before it were refused");
    let last = last.await.expect("no panic");
    for index in 0..7 {
        nodes.remove(format!("own-{index}"));
    }
    sleep(ms(100)).await;
    assert!(crowd.waiting.iter().all(|one| !one.is_finished()), "the last has what all want");
    last.release().await.expect("nodes are up");
    sleep(ms(50)).await;
    crowd.drain().await;
}

/// One that stands in a line of its own and is polled by hand, and others behind it. It is told that what all want has gone.
async fn told_and_not_polled(nodes: &Nodes, redlock: &Redlock) -> (Pin<Box<Acquire>>, Crowd) {
    nodes.only(1).hold("z", MAX_TTL);
    nodes.only(0).hold("first", MAX_TTL);
    let mut first = Box::pin(redlock.acquire_all(["first", "z"]));
    for _ in 0..20 {
        assert!((&mut first).now_or_never().is_none());
        sleep(ms(1)).await;
    }
    let crowd = in_lines_of_their_own(nodes, redlock, 3).await;
    nodes.remove("z");
    sleep(ms(20)).await;
    assert!(crowd.waiting.iter().all(|one| !one.is_finished()), "the first goes first");
    (first, crowd)
}

#[tokio::test(start_paused = true)]
async fn one_that_was_told_and_leaves_tells_the_next() {
    let nodes = Nodes::start(3);
    let redlock = patient(&nodes);
    let (first, crowd) = told_and_not_polled(&nodes, &redlock).await;
    drop(first);
    sleep(ms(20)).await;
    crowd.drain().await;
}

#[tokio::test(start_paused = true)]
async fn untaken_lease_of_a_set_is_revoked_for_sets_in_other_queues() {
    let nodes = Nodes::start(3);
    let redlock = patient(&nodes);
    let (first, crowd) = told_and_not_polled(&nodes, &redlock).await;
    sleep(ms(1_000)).await;
    assert!(crowd.waiting.iter().all(|one| !one.is_finished()), "the limit has not passed");
    sleep(ms(2_000)).await;
    crowd.drain().await;
    let lease = first.await.expect("its next attempt succeeds");
    lease.release().await.expect("nodes are up");
}

/// What the first wants beside the others' key is kept back for a while by the one who let go of it.
#[tokio::test(start_paused = true)]
async fn one_that_was_told_and_can_try_only_later_holds_up_nobody() {
    let nodes = Nodes::start(5);
    let redlock = patient(&nodes);
    let held = redlock.acquire("kept").ttl(MAX_TTL / 2).await.expect("a free lock");
    nodes.only(3).hold("z", MAX_TTL);
    let own = ["first", "own-0", "own-1"];
    for own in own {
        nodes.only(..2).hold(own, MAX_TTL);
    }
    let first = tokio::spawn(redlock.acquire_all(["first", "kept", "z"]).into_future());
    sleep(ms(20)).await;
    let pairs = own[1..].iter().map(|own| [(*own).into(), "z".into()]);
    let crowd = Crowd::wait_for(&redlock, pairs).await;
    held.release_after(ms(5_000)).await.expect("nodes are up");
    nodes.remove("z");
    sleep(ms(20)).await;
    crowd.drain().await;
    assert!(!first.is_finished(), "it is kept back");
    let lease = first.await.expect("no panic").expect("it is told when it can try");
    lease.release().await.expect("nodes are up");
}

#[tokio::test(start_paused = true)]
async fn what_a_node_names_after_the_refusal_is_watched_as_well() {
    let nodes = Nodes::start(5);
    let redlock = patient(&nodes);
    redlock.acquire("warm-up").await.expect("free").release().await.expect("nodes are up");
    nodes.only(..2).hold("a", MAX_TTL);
    nodes.only(2..).hold("b", MAX_TTL);
    // Three have refused before the others answer.
    nodes.only(..3).delay(ms(50));
    nodes.only(3..).delay(ms(100));
    let waiting = tokio::spawn(redlock.acquire_all(["a", "b"]).into_future());
    sleep(ms(1_000)).await;
    nodes.remove("b");
    let lease = waiting.await.expect("no panic").expect("three nodes are free");
    lease.release().await.expect("nodes are up");
}
