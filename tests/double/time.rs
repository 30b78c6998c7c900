//! Time for nodes in the process: as it passes, paused, moved; with and without a runtime.

use crate::{SOON, eventually, ms, secs};
use quorlock::{Loss, ReleaseOutcome};
use quorlock_test::{Clock, Nodes, pending_work};
use std::thread;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::Instant;

const HOUR: Duration = secs(3_600);

#[tokio::test(start_paused = true)]
async fn nothing_takes_time_while_the_nodes_are_well() {
    let begun = Instant::now();
    let nodes = Nodes::start(5);
    let redlock = nodes.client().build().expect("good settings");
    for _ in 0..10 {
        let lease = redlock.acquire("r").await.expect("a free lock");
        assert_eq!(nodes.count("r"), 5);
        lease.release().await.expect("all are well");
    }
    redlock.close().await.expect("nothing is owed");
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn what_takes_an_hour_takes_none_of_ours() {
    let began = std::time::Instant::now();
    let nodes = Nodes::start(5);
    let redlock = nodes.client().build().expect("good settings");
    let lease = redlock.acquire("r").auto_extend(2 * HOUR).await.expect("a free lock");
    tokio::time::sleep(HOUR).await;
    assert!(lease.is_valid(), "it was renewed all the time");
    nodes.hang();
    assert_eq!(lease.lost().await, Loss::Expired);
    nodes.resume();
    eventually("its keys end", || nodes.count("r") == 0).await;
    assert!(began.elapsed() < HOUR / 10);
}

#[tokio::test(start_paused = true)]
async fn the_same_happens_in_each_run() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let nodes = Nodes::start(3);
        let redlock = nodes.client().fenced().build().expect("good settings");
        let first = redlock.acquire("first").await.expect("a free lock");
        runs.push((first.value().to_owned(), first.token(), 0));
        nodes.hold("r", secs(5));
        let begun = Instant::now();
        let lease = redlock.acquire("r").wait(secs(60)).await.expect("theirs ends");
        runs.push((lease.value().to_owned(), lease.token(), begun.elapsed().as_millis()));
        let other = nodes.client().build().expect("good settings");
        let another = other.acquire("s").await.expect("a free lock");
        runs.push((another.value().to_owned(), None, 0));
    }
    assert_eq!(runs[..3], runs[3..]);
    assert_ne!(runs[0].0, runs[2].0, "two clients draw different values");
}

#[tokio::test(start_paused = true)]
async fn who_waits_has_the_lock_when_the_time_of_the_holder_is_over() {
    let nodes = Nodes::start(5);
    let redlock = nodes.client().build().expect("good settings");
    nodes.hold("r", secs(5));
    let begun = Instant::now();
    drop(redlock.acquire("r").wait(secs(60)).await.expect("theirs ends"));
    let waited = begun.elapsed();
    assert!(waited >= secs(5) && waited < secs(6), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn who_holds_or_waits_is_told_at_once_of_what_is_removed() {
    let nodes = Nodes::start(5);
    let redlock = nodes.client().build().expect("good settings");
    let lease = redlock.acquire("r").auto_extend(HOUR).await.expect("a free lock");
    nodes.hold("s", HOUR);
    let waiting = tokio::spawn(redlock.acquire("s").wait(HOUR).into_future());
    tokio::time::sleep(ms(2_500)).await;
    let begun = Instant::now();
    nodes.remove("r");
    assert_eq!(lease.lost().await, Loss::QuorumLost);
    nodes.remove("s");
    drop(waiting.await.expect("no panic").expect("it is free"));
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn time_that_is_moved_passes_for_clients_and_nodes() {
    let nodes = Nodes::start(5);
    let redlock = nodes.client().build().expect("good settings");
    let lease = redlock.acquire("r").ttl(secs(30)).await.expect("a free lock");
    nodes.advance(secs(20));
    assert!(lease.is_valid() && lease.validity() <= secs(10));
    nodes.advance(secs(20));
    assert!(!lease.is_valid());
    assert_eq!(nodes.count("r"), 0);
    assert_eq!(lease.lost().await, Loss::Expired);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_passes_by_itself_where_it_is_not_paused() {
    let nodes = Nodes::start(5);
    let builder = || nodes.client().node_timeout(secs(1));
    let [one, other] = [(); 2].map(|()| builder().build().expect("good settings"));
    let lease = one.acquire("r").ttl(secs(2)).wait(SOON).await.expect("a free lock");
    let next = other.acquire("r").ttl(secs(50)).wait(SOON).await.expect("it ends by itself");
    assert_eq!(lease.lost().await, Loss::Expired);
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::TakenOver));
    let waiting = tokio::spawn(one.acquire("r").wait(HOUR).into_future());
    eventually("it waits", || pending_work(&one).waiters == 1).await;
    nodes.advance(secs(60));
    let had = tokio::time::timeout(SOON, waiting).await.expect("time was moved");
    drop(had.expect("no panic").expect("its time is over"));
    drop(next);
}

#[tokio::test]
async fn a_client_with_a_clock_of_its_own_keeps_it() {
    let nodes = Nodes::start(5);
    let clock = Clock::default();
    let builder = nodes.client().node_timeout(secs(1)).clock(&clock);
    let redlock = builder.build().expect("good settings");
    let lease = redlock.acquire("r").ttl(secs(30)).wait(SOON).await.expect("a free lock");
    clock.advance(secs(60));
    assert_eq!(lease.lost().await, Loss::Expired);
    eventually("it stands on the nodes", || nodes.count("r") == 5).await;
}

#[test]
fn alarms_ring_also_when_their_runtime_is_gone_and_without_one() {
    let nodes = Nodes::start(5);
    let [first, second] = [(); 2].map(|()| Runtime::new().expect("a runtime"));
    let redlock = nodes.client().node_timeout(secs(1)).build().expect("good settings");
    let acquiring = redlock.acquire("r").ttl(secs(30)).wait(SOON);
    let lease = first.block_on(acquiring.into_future()).expect("a free lock");
    let losing = second.spawn(async move { lease.lost().await });
    drop(first);
    // So long that it waits, on any machine that is not very busy.
    thread::sleep(ms(200));
    assert!(!losing.is_finished());
    nodes.advance(secs(60));
    let lost = second.block_on(async { tokio::time::timeout(SOON, losing).await });
    assert_eq!(lost.expect("it is told").expect("no panic"), Loss::Expired);

    // Here no runtime is entered: the end of what is held is told all the same.
    let waiting = second.spawn(redlock.acquire("s").wait(SOON).into_future());
    drop(second.block_on(waiting).expect("no panic").expect("a free lock"));
    nodes.hold("s", ms(300));
    let waiting = second.spawn(redlock.acquire("s").wait(SOON).into_future());
    drop(second.block_on(waiting).expect("no panic").expect("theirs has ended"));
}

#[cfg(feature = "blocking")]
#[test]
fn the_client_without_async_has_them_too() {
    use quorlock::AcquireError;
    use quorlock::blocking::Error;

    let nodes = Nodes::start(3);
    let builder = nodes.client().node_timeout(secs(1));
    let redlock = builder.build_blocking().expect("good settings");
    let lease = redlock.acquire("r").ttl(secs(30)).call().expect("a free lock");
    nodes.advance(secs(31));
    assert_eq!(lease.lost_within(SOON), Some(Loss::Expired));
    nodes.hold("r", secs(3_600));
    let refused = redlock.try_acquire("r").call().expect_err("somebody else has it");
    assert!(matches!(refused, Error::Failed(AcquireError::Contended { .. })), "{refused}");
    let waiting = thread::spawn({
        let redlock = redlock.clone();
        move || redlock.acquire("r").wait(2 * HOUR).call()
    });
    nodes.advance(secs(3_600));
    drop(waiting.join().expect("no panic").expect("their time is over"));
}
