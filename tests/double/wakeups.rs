//! Who waits for a lock is told when it is free, whoever has let go of it, and how.

use crate::{ms, secs};
use quorlock::{AcquireError, Lease, Redlock, ReleaseOutcome, RetryPolicy};
use quorlock_test::Nodes;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Nobody tries so seldom by accident.
const SELDOM: Duration = secs(20);

fn client(nodes: &Nodes) -> Redlock {
    nodes.client().build().expect("good settings")
}

/// Waits for the lock, and tries seldom: how long that took since `begun`.
async fn waits(redlock: &Redlock) -> JoinHandle<Instant> {
    let acquire = redlock.acquire("r").wait(secs(45)).retry(RetryPolicy::fixed(SELDOM));
    let waiting = tokio::spawn(async move {
        acquire.await.map(drop).expect("it is let go of");
        Instant::now()
    });
    sleep(ms(1_500)).await;
    waiting
}

async fn held(redlock: &Redlock) -> Lease {
    redlock.acquire("r").ttl(secs(50)).await.expect("a free lock")
}

async fn assert_is_told(waiting: JoinHandle<Instant>, since: Instant) {
    let took = waiting.await.expect("no panic") - since;
    assert!(took < secs(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn of_a_lock_that_was_taken_away_those_of_the_same_client_are_told_as_well() {
    for is_own in [false, true] {
        let nodes = Nodes::start(3);
        let (ours, theirs) = (client(&nodes), client(&nodes));
        let _lease = held(&theirs).await;
        let waiting = waits(&ours).await;
        let (by, begun) = (if is_own { &ours } else { &theirs }, Instant::now());
        by.force_release("r").await.expect("all are well");
        assert_is_told(waiting, begun).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_free_later_in_one_way_is_free_now_in_another() {
    let nodes = Nodes::start(3);
    let (ours, theirs) = (client(&nodes), client(&nodes));
    let lost = held(&ours).await;
    theirs.force_release("r").await.expect("all are well");
    let taken = held(&theirs).await;
    let waiting = waits(&ours).await;
    // As far as is known here, nobody can have it for as long: but the nodes have another's.
    let outcome = lost.release_after(secs(30)).await;
    assert_eq!(outcome.expect("all are well"), ReleaseOutcome::TakenOver);
    sleep(ms(100)).await;
    let begun = Instant::now();
    taken.release().await.expect("all are well");
    assert_is_told(waiting, begun).await;
}

#[tokio::test(start_paused = true)]
async fn several_locks_are_tried_again_when_it_is_time_as_one_is() {
    for keys in [&["a"][..], &["a", "b"]] {
        let nodes = Nodes::start(3);
        let ours = client(&nodes);
        ours.ready().await.expect("all are well");
        nodes.hold("a", secs(50));
        let begun = Instant::now();
        let acquire = ours.acquire_all(keys).wait(secs(40));
        let refused = acquire.retry(RetryPolicy::fixed(secs(5)).limit(1)).await;
        assert!(matches!(refused, Err(AcquireError::Contended { .. })), "{refused:?}");
        assert!(begun.elapsed() >= secs(5), "{keys:?}: {:?}", begun.elapsed());
    }
}
