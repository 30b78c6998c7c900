//! Tests of clients whose clock is set by `Builder::clock`.

use crate::{builder, eventually, ms};
use kit::Cluster;
use quorlock::{AcquireError, Loss, Redlock};
use quorlock_test::Clock;
use std::time::{Duration, Instant};
use tokio::time::timeout;

const HOUR: Duration = Duration::from_hours(1);
const PATIENCE: Duration = Duration::from_secs(30);

fn with_clock(clock: &Clock, cluster: &Cluster) -> Redlock {
    let builder = builder(cluster).max_ttl(2 * HOUR).clock(clock);
    builder.build().expect("valid settings")
}

#[tokio::test]
async fn lease_expires_by_its_clients_clock() {
    let cluster = Cluster::start(3);
    let clock = Clock::default();
    let mine =
        with_clock(&clock, &cluster).acquire("mine").ttl(HOUR).await.expect("the lock is free");
    let other = with_clock(&Clock::default(), &cluster);
    let other = other.acquire("other").ttl(HOUR).await.expect("the lock is free");
    clock.advance(HOUR / 2);
    assert!(mine.is_valid() && mine.validity() <= HOUR / 2);
    let lost = mine.lost();
    clock.advance(HOUR / 2);
    assert!(!mine.is_valid());
    assert_eq!(timeout(PATIENCE, lost).await.expect("the loss is reported"), Loss::Expired);
    assert!(other.is_valid() && other.validity() > HOUR / 2);
}

#[tokio::test]
async fn lease_is_renewed_by_its_clients_clock() {
    let cluster = Cluster::start(3);
    let clock = Clock::default();
    let redlock = with_clock(&clock, &cluster);
    let lease =
        redlock.acquire("r").ttl(HOUR).auto_extend_forever().await.expect("the lock is free");
    let not_renewed = redlock.acquire("other").ttl(HOUR).await.expect("the lock is free");
    for _ in 0..4 {
        clock.advance(HOUR / 2);
        eventually("the lease is extended", || lease.validity() > HOUR / 10 * 9).await;
    }
    assert!(lease.is_valid() && !not_renewed.is_valid(), "two hours have passed on their clock");
}

#[tokio::test]
async fn wait_ends_by_the_clients_clock() {
    let cluster = Cluster::start(3);
    let _held = builder(&cluster).build().expect("valid settings").acquire("r").await;
    let clock = Clock::default();
    let redlock = with_clock(&clock, &cluster);
    redlock.ready().await.expect("nodes are up");
    let started = Instant::now();
    let waiting = tokio::spawn(async move { redlock.acquire("r").wait(HOUR).await });
    tokio::time::sleep(ms(200)).await;
    assert!(!waiting.is_finished());
    clock.advance(HOUR);
    let refused = timeout(PATIENCE, waiting).await.expect("the wait ends").expect("no panic");
    assert!(matches!(refused, Err(AcquireError::Contended { .. })), "{refused:?}");
    assert!(started.elapsed() < PATIENCE);
}
