//! Tests of the in-process nodes' time: running, paused or advanced, with and without a runtime.

use crate::{SOON, eventually, ms, secs};
use quorlock::{Loss, Redlock, ReleaseOutcome};
use quorlock_test::{Clock, Nodes, pending_work};
use std::thread;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::Instant;

const HOUR: Duration = secs(3_600);

#[tokio::test(start_paused = true)]
async fn no_time_passes_while_nodes_are_up() {
    let started = Instant::now();
    let nodes = Nodes::start(5);
    let redlock = nodes.client().build().expect("valid settings");
    for _ in 0..10 {
        let lease = redlock.acquire("r").await.expect("the lock is free");
        assert_eq!(nodes.count("r"), 5);
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
    redlock.close().await.expect("no release is pending");
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_paused_time_passes_quickly() {
    let real_start = std::time::Instant::now();
    let nodes = Nodes::start(5);
    let redlock = nodes.client().build().expect("valid settings");
    let lease = redlock.acquire("r").auto_extend(2 * HOUR).await.expect("the lock is free");
    tokio::time::sleep(HOUR).await;
    assert!(lease.is_valid(), "the lease is renewed");
    nodes.hang();
    assert_eq!(lease.lost().await, Loss::Expired);
    nodes.resume();
    eventually("the keys expire", || nodes.count("r") == 0).await;
    assert!(real_start.elapsed() < HOUR / 10);
}

#[tokio::test(start_paused = true)]
async fn runs_are_deterministic() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let nodes = Nodes::start(3);
        let redlock = nodes.client().fenced().build().expect("valid settings");
        let first = redlock.acquire("first").await.expect("the lock is free");
        runs.push((first.value().to_owned(), first.token(), 0));
        nodes.hold("r", secs(5));
        let started = Instant::now();
        let lease = redlock.acquire("r").wait(secs(60)).await.expect("the holder's ttl ends");
        runs.push((lease.value().to_owned(), lease.token(), started.elapsed().as_millis()));
        let other = nodes.client().build().expect("valid settings");
        let another = other.acquire("s").await.expect("the lock is free");
        runs.push((another.value().to_owned(), None, 0));
    }
    assert_eq!(runs[..3], runs[3..]);
    assert_ne!(runs[0].0, runs[2].0, "two clients have different lock values");
}

#[tokio::test(start_paused = true)]
async fn waiting_acquire_succeeds_when_the_holder_expires() {
    let nodes = Nodes::start(5);
    let redlock = nodes.client().build().expect("valid settings");
    nodes.hold("r", secs(5));
    let started = Instant::now();
    drop(redlock.acquire("r").wait(secs(60)).await.expect("the holder's ttl ends"));
    let waited = started.elapsed();
    assert!(waited >= secs(5) && waited < secs(6), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn removal_of_a_key_is_noticed_at_once() {
    let nodes = Nodes::start(5);
    let redlock = nodes.client().build().expect("valid settings");
    let lease = redlock.acquire("r").auto_extend(HOUR).await.expect("the lock is free");
    nodes.hold("s", HOUR);
    let waiting = tokio::spawn(redlock.acquire("s").wait(HOUR).into_future());
    tokio::time::sleep(ms(2_500)).await;
    let started = Instant::now();
    nodes.remove("r");
    assert_eq!(lease.lost().await, Loss::QuorumLost);
    nodes.remove("s");
    drop(waiting.await.expect("no panic").expect("the lock is free"));
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn advanced_time_passes_for_clients_and_nodes() {
    let nodes = Nodes::start(5);
    let redlock = nodes.client().build().expect("valid settings");
    let lease = redlock.acquire("r").ttl(secs(30)).await.expect("the lock is free");
    nodes.advance(secs(20));
    assert!(lease.is_valid() && lease.validity() <= secs(10));
    nodes.advance(secs(20));
    assert!(!lease.is_valid());
    assert_eq!(nodes.count("r"), 0);
    assert_eq!(lease.lost().await, Loss::Expired);
}

/// A client of real servers waits for its sockets. tokio takes such a runtime for idle, and advances its paused clock.
#[tokio::test(start_paused = true)]
async fn paused_time_ends_a_timeout_before_real_servers_reply() {
    let servers = kit::Cluster::start(3);
    let real_start = std::time::Instant::now();
    let redlock = Redlock::builder().nodes(servers.urls()).build().expect("valid settings");
    let acquired = tokio::time::timeout(HOUR, redlock.acquire("r")).await;
    assert!(acquired.is_err(), "the servers replied first");
    assert!(real_start.elapsed() < HOUR / 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unpaused_time_passes_by_itself() {
    let nodes = Nodes::start(5);
    let builder = || nodes.client().node_timeout(secs(1));
    let [one, other] = [(); 2].map(|()| builder().build().expect("valid settings"));
    let lease = one.acquire("r").ttl(secs(2)).wait(SOON).await.expect("the lock is free");
    let next = other.acquire("r").ttl(secs(50)).wait(SOON).await.expect("the lease expires");
    assert_eq!(lease.lost().await, Loss::Expired);
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::TakenOver));
    let waiting = tokio::spawn(one.acquire("r").wait(HOUR).into_future());
    eventually("the acquire waits", || pending_work(&one).waiters == 1).await;
    nodes.advance(secs(60));
    let acquired = tokio::time::timeout(SOON, waiting).await.expect("time was advanced");
    drop(acquired.expect("no panic").expect("the lease has expired"));
    drop(next);
}

#[tokio::test]
async fn client_with_its_own_clock_keeps_it() {
    let nodes = Nodes::start(5);
    let clock = Clock::default();
    let builder = nodes.client().node_timeout(secs(1)).clock(&clock);
    let redlock = builder.build().expect("valid settings");
    let lease = redlock.acquire("r").ttl(secs(30)).wait(SOON).await.expect("the lock is free");
    clock.advance(secs(60));
    assert_eq!(lease.lost().await, Loss::Expired);
    eventually("the keys remain on the nodes", || nodes.count("r") == 5).await;
}

#[test]
fn alarms_fire_without_a_runtime() {
    let nodes = Nodes::start(5);
    let [first, second] = [(); 2].map(|()| Runtime::new().expect("a runtime"));
    let redlock = nodes.client().node_timeout(secs(1)).build().expect("valid settings");
    let acquiring = redlock.acquire("r").ttl(secs(30)).wait(SOON);
    let lease = first.block_on(acquiring.into_future()).expect("the lock is free");
    let losing = second.spawn(async move { lease.lost().await });
    drop(first);
    // The pause is long enough for the task to wait for the loss, except on a very busy machine.
    thread::sleep(ms(200));
    assert!(!losing.is_finished());
    nodes.advance(secs(60));
    let lost = second.block_on(async { tokio::time::timeout(SOON, losing).await });
    assert_eq!(lost.expect("the loss is reported in time").expect("no panic"), Loss::Expired);

    // No runtime is entered here, but the in-process nodes must still report that the key expired.
    let waiting = second.spawn(redlock.acquire("s").wait(SOON).into_future());
    drop(second.block_on(waiting).expect("no panic").expect("the lock is free"));
    nodes.hold("s", ms(300));
    let waiting = second.spawn(redlock.acquire("s").wait(SOON).into_future());
    drop(second.block_on(waiting).expect("no panic").expect("the holder's ttl ends"));
}

#[cfg(feature = "blocking")]
#[test]
fn blocking_client_uses_the_nodes_too() {
    use quorlock::AcquireError;
    use quorlock::blocking::Error;

    let nodes = Nodes::start(3);
    let builder = nodes.client().node_timeout(secs(1));
    let redlock = builder.build_blocking().expect("valid settings");
    let lease = redlock.acquire("r").ttl(secs(30)).call().expect("the lock is free");
    nodes.advance(secs(31));
    assert_eq!(lease.lost_within(SOON), Some(Loss::Expired));
    nodes.hold("r", secs(3_600));
    let refused = redlock.try_acquire("r").call().expect_err("another client has the lock");
    assert!(matches!(refused, Error::Failed(AcquireError::Contended { .. })), "{refused}");
    let waiting = thread::spawn({
        let redlock = redlock.clone();
        move || redlock.acquire("r").wait(2 * HOUR).call()
    });
    nodes.advance(secs(3_600));
    drop(waiting.join().expect("no panic").expect("the holder's ttl ends"));
}
