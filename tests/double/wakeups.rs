//! Tests that a waiting acquire is notified when the lock becomes free, however the lock was freed.

use crate::{ms, secs};
use quorlock::{AcquireError, Lease, Redlock, ReleaseOutcome, RetryPolicy};
use quorlock_test::Nodes;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// A delay so long that a test cannot mistake a retry for a notification, which must arrive within a second.
const RETRY_DELAY: Duration = secs(20);

fn client(nodes: &Nodes) -> Redlock {
    nodes.client().build().expect("valid settings")
}

async fn spawn_waiter(redlock: &Redlock) -> JoinHandle<Instant> {
    let acquire = redlock.acquire("r").wait(secs(45)).retry(RetryPolicy::fixed(RETRY_DELAY));
    let waiting = tokio::spawn(async move {
        acquire.await.map(drop).expect("the lock becomes free");
        Instant::now()
    });
    sleep(ms(1_500)).await;
    waiting
}

async fn acquire(redlock: &Redlock) -> Lease {
    redlock.acquire("r").ttl(secs(50)).await.expect("the lock is free")
}

async fn assert_acquired_soon(waiting: JoinHandle<Instant>, since: Instant) {
    let took = waiting.await.expect("no panic") - since;
    assert!(took < secs(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn forced_release_notifies_waiters_of_every_client() {
    for by_same_client in [false, true] {
        let nodes = Nodes::start(3);
        let (redlock, other_client) = (client(&nodes), client(&nodes));
        let _lease = acquire(&other_client).await;
        let waiting = spawn_waiter(&redlock).await;
        let (releaser, started) =
            (if by_same_client { &redlock } else { &other_client }, Instant::now());
        releaser.force_release("r").await.expect("nodes are up");
        assert_acquired_soon(waiting, started).await;
    }
}

#[tokio::test(start_paused = true)]
async fn early_release_by_another_client_ends_the_wait_for_a_cooldown() {
    let nodes = Nodes::start(3);
    let (redlock, other_client) = (client(&nodes), client(&nodes));
    let superseded = acquire(&redlock).await;
    other_client.force_release("r").await.expect("nodes are up");
    let taken = acquire(&other_client).await;
    let waiting = spawn_waiter(&redlock).await;
    // The client releases its lease with a cooldown of 30 s, but the nodes hold another client's key.
    let outcome = superseded.release_after(secs(30)).await;
    assert_eq!(outcome.expect("nodes are up"), ReleaseOutcome::TakenOver);
    sleep(ms(100)).await;
    let started = Instant::now();
    assert_eq!(taken.release().await, Ok(ReleaseOutcome::Released));
    assert_acquired_soon(waiting, started).await;
}

#[tokio::test(start_paused = true)]
async fn sets_are_retried_after_the_same_delay_as_one_lock() {
    for keys in [&["a"][..], &["a", "b"]] {
        let nodes = Nodes::start(3);
        let redlock = client(&nodes);
        redlock.ready().await.expect("nodes are up");
        nodes.hold("a", secs(50));
        let started = Instant::now();
        let acquire = redlock.acquire_all(keys).wait(secs(40));
        let refused = acquire.retry(RetryPolicy::fixed(secs(5)).limit(1)).await;
        assert!(matches!(refused, Err(AcquireError::Contended { .. })), "{refused:?}");
        assert!(started.elapsed() >= secs(5), "{keys:?}: {:?}", started.elapsed());
    }
}
