//! Clients that live by a clock of their own.

use crate::{builder, eventually, ms};
use kit::Cluster;
use quorlock::{AcquireError, Loss, Redlock};
use quorlock_test::Clock;
use std::time::{Duration, Instant};
use tokio::time::timeout;

const HOUR: Duration = Duration::from_hours(1);
const PATIENCE: Duration = Duration::from_secs(30);

fn living_by(clock: &Clock, cluster: &Cluster) -> Redlock {
    let builder = builder(cluster).max_ttl(2 * HOUR).clock(clock);
    builder.build().expect("good settings")
}

#[tokio::test]
async fn a_lease_ends_by_the_clock_of_its_client_and_no_other_does() {
    let cluster = Cluster::start(3);
    let clock = Clock::default();
    let mine = living_by(&clock, &cluster).acquire("mine").ttl(HOUR).await.expect("a free lock");
    let other = living_by(&Clock::default(), &cluster);
    let other = other.acquire("other").ttl(HOUR).await.expect("a free lock");
    clock.advance(HOUR / 2);
    assert!(mine.is_valid() && mine.validity() <= HOUR / 2);
    let lost = mine.lost();
    clock.advance(HOUR / 2);
    assert!(!mine.is_valid());
    assert_eq!(timeout(PATIENCE, lost).await.expect("it is told"), Loss::Expired);
    assert!(other.is_valid() && other.validity() > HOUR / 2);
}

#[tokio::test]
async fn a_lease_is_extended_when_its_clock_says_so() {
    let cluster = Cluster::start(3);
    let clock = Clock::default();
    let redlock = living_by(&clock, &cluster);
    let lease = redlock.acquire("r").ttl(HOUR).auto_extend_forever().await.expect("a free lock");
    let not_renewed = redlock.acquire("other").ttl(HOUR).await.expect("a free lock");
    for _ in 0..4 {
        clock.advance(HOUR / 2);
        eventually("it is extended", || lease.validity() > HOUR / 10 * 9).await;
    }
    assert!(lease.is_valid() && !not_renewed.is_valid(), "after two hours by their clock");
}

#[tokio::test]
async fn whoever_waits_gives_up_by_the_clock_of_its_client() {
    let cluster = Cluster::start(3);
    let _held = builder(&cluster).build().expect("good settings").acquire("r").await;
    let clock = Clock::default();
    let redlock = living_by(&clock, &cluster);
    redlock.ready().await.expect("nodes are up");
    let begun = Instant::now();
    let waiting = tokio::spawn(async move { redlock.acquire("r").wait(HOUR).await });
    tokio::time::sleep(ms(200)).await;
    assert!(!waiting.is_finished());
    clock.advance(HOUR);
    let refused = timeout(PATIENCE, waiting).await.expect("its time is over").expect("no panic");
    assert!(matches!(refused, Err(AcquireError::Contended { .. })), "{refused:?}");
    assert!(begun.elapsed() < PATIENCE);
}
