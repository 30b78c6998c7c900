//! Who waits for the end of a lease, and who is told in time to stop.

use crate::{MAX_TTL, SOON, builder, ms};
use futures::FutureExt;
use kit::{Cluster, Server};
use quorlock::{ConfigError, Ended, ExtendError, LeaseRef, Loss, Redlock};
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

fn client(cluster: &Cluster) -> Redlock {
    builder(cluster).node_timeout(ms(200)).ttl(ms(3_000)).build().expect("good settings")
}

/// A task that waits for the end.
fn waits(view: LeaseRef) -> JoinHandle<Ended> {
    tokio::spawn(async move { view.ended().await })
}

async fn told(waiting: JoinHandle<Ended>) -> Ended {
    timeout(SOON, waiting).await.expect("told").expect("no panic")
}

#[tokio::test]
async fn every_end_is_told_to_those_who_wait_for_it() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let acquire = |resource: &'static str| redlock.acquire(resource).ttl(MAX_TTL);

    let released = acquire("released").await.expect("a free lock");
    let waiting = waits(released.view());
    let many: Vec<_> = (0..600).map(|_| waits(released.view())).collect();
    sleep(ms(50)).await;
    assert!(!waiting.is_finished());
    released.release().await.expect("nodes are up");
    assert_eq!(told(waiting).await, Ended::Released);
    for one in many {
        assert_eq!(told(one).await, Ended::Released);
    }

    let dropped = acquire("dropped").auto_extend_forever().await.expect("a free lock");
    let (view, waiting) = (dropped.view(), waits(dropped.view()));
    sleep(ms(50)).await;
    drop(dropped);
    assert_eq!(told(waiting).await, Ended::Released);
    assert_eq!(view.ended().await, Ended::Released, "and to whoever asks later");

    let first = acquire("twice").await.expect("a free lock");
    let second = first.reenter().expect("it is held");
    let waiting = waits(first.view());
    first.release().await.expect("nodes are up");
    sleep(ms(50)).await;
    assert!(!waiting.is_finished(), "another guard holds it");
    drop(second);
    assert_eq!(told(waiting).await, Ended::Released);

    let expired = redlock.acquire("expired").ttl(ms(600)).await.expect("a free lock");
    assert_eq!(told(waits(expired.view())).await, Ended::Lost(Loss::Expired));
    assert_eq!(Ended::Lost(Loss::Expired).to_string(), "lost: its validity ended");

    let closed = acquire("closed").await.expect("a free lock");
    let waiting = waits(closed.view());
    sleep(ms(50)).await;
    redlock.close().await.expect("nodes are up");
    assert_eq!(told(waiting).await, Ended::Lost(Loss::Closed));
}

#[tokio::test]
async fn danger_is_told_before_the_end_and_not_while_the_lease_is_renewed() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.acquire("r").auto_extend_forever().await.expect("a free lock");
    let margin = ms(900);
    assert!(timeout(ms(5_000), lease.endangered(margin)).await.is_err(), "it is renewed");
    let (view, other) = (lease.view(), lease.view());
    let endangered = tokio::spawn(async move { view.endangered(ms(900)).await });
    let until_the_end = tokio::spawn(async move { other.endangered(Duration::ZERO).await });
    cluster.servers().iter().for_each(Server::stop);
    let left = timeout(SOON, endangered).await.expect("told").expect("no panic");
    assert!(left <= margin, "{left:?}");
    let left = timeout(SOON, until_the_end).await.expect("told").expect("no panic");
    assert_eq!(left, Duration::ZERO);
    assert_eq!(lease.loss(), Some(Loss::Expired));
    assert_eq!(lease.endangered(margin).await, Duration::ZERO, "at once");
    cluster.servers().iter().for_each(Server::cont);
}

#[tokio::test]
async fn danger_is_told_at_once_where_it_is_and_at_the_release() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.acquire("r").ttl(MAX_TTL).await.expect("a free lock");
    let left = timeout(SOON, lease.endangered(MAX_TTL)).await.expect("it is so already");
    assert!(left > MAX_TTL / 2 && left < MAX_TTL);
    let short = redlock.acquire("short").ttl(ms(6_000)).await.expect("a free lock");
    let left = timeout(SOON, short.endangered(ms(5_000))).await.expect("it comes near");
    assert!(left <= ms(5_000));
    short.extend(MAX_TTL).await.expect("nodes are up, and there was time");
    let view = lease.view();
    let waiting = tokio::spawn(async move { view.endangered(ms(1_000)).await });
    sleep(ms(50)).await;
    assert!(!waiting.is_finished());
    drop(lease);
    let left = timeout(SOON, waiting).await.expect("told").expect("no panic");
    assert_eq!(left, Duration::ZERO);
}

#[tokio::test]
async fn what_is_told_right_after_the_first_poll_is_heard() {
    let cluster = Cluster::start(3);
    let lease = client(&cluster).acquire("r").ttl(MAX_TTL).await.expect("a free lock");
    let view = lease.view();
    let mut ended = pin!(view.ended());
    let mut in_danger = pin!(view.endangered(ms(1_000)));
    // Nothing is between these polls and the release: whoever listened from a later poll on would not hear it.
    assert!(ended.as_mut().now_or_never().is_none());
    assert!(in_danger.as_mut().now_or_never().is_none());
    lease.release().await.expect("nodes are up");
    assert_eq!(timeout(SOON, ended).await.expect("told"), Ended::Released);
    assert_eq!(timeout(SOON, in_danger).await.expect("told"), Duration::ZERO);
}

fn scripts(cluster: &Cluster) -> u64 {
    cluster.iter().map(|node| node.calls("evalsha")).sum()
}

#[tokio::test]
async fn as_much_as_is_asked_for_is_ensured_with_one_extension_or_none() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build().expect("good settings");
    let lease = redlock.acquire("r").ttl(ms(10_000)).await.expect("a free lock");
    cluster.iter().for_each(Server::reset_stats);
    lease.ensure(Duration::ZERO).await.expect("it is held");
    lease.ensure(ms(2_000)).await.expect("it is held");
    assert_eq!(scripts(&cluster), 0, "no node was asked");

    // Less than its own ttl gives: it gets that anew, and not less.
    sleep(ms(1_500)).await;
    lease.ensure(ms(9_000)).await.expect("nodes are up");
    assert!(scripts(&cluster) > 0);
    assert!(lease.validity() >= ms(5_000), "{:?}", lease.validity());
    // More.
    for asked in [20_000, 60_000, 3_000_000] {
        lease.ensure(ms(asked)).await.expect("nodes are up");
        let validity = lease.validity();
        let bounds = ms(asked - 5_000)..ms(asked + 5_000);
        assert!(bounds.contains(&validity), "{validity:?} for {asked} ms");
    }

    // All that there is can be had, but not more.
    let most = MAX_TTL.saturating_sub(MAX_TTL / 100 + ms(2));
    for validity in [most + ms(1), Duration::MAX] {
        let refused = lease.ensure(validity).await.expect_err("more than max_ttl gives");
        let reason = ConfigError::EnsureExceedsMax { validity, max_ttl: MAX_TTL };
        assert_eq!(refused, ExtendError::Invalid(reason), "it says what was asked for");
    }
    lease.ensure(most.saturating_sub(ms(5_000))).await.expect("nodes are up");

    let begun = Instant::now();
    cluster.servers()[..2].iter().for_each(Server::stop);
    let refused =
        lease.ensure(most.saturating_sub(ms(100))).await.expect_err("one node is no quorum");
    assert!(matches!(refused, ExtendError::NoQuorum { .. }), "{refused}");
    assert!(lease.is_valid() && begun.elapsed() < SOON);
    cluster.servers()[..2].iter().for_each(Server::cont);

    let view = lease.view();
    drop(lease);
    assert_eq!(view.ensure(ms(1)).await, Err(ExtendError::Released));
    assert_eq!(view.ensure(Duration::ZERO).await, Err(ExtendError::Released));
}

#[cfg(feature = "blocking")]
#[test]
fn a_thread_that_waits_for_the_loss_is_told_when_the_client_is_closed() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build_blocking().expect("good settings");
    let lease = redlock.acquire("r").auto_extend_forever().call().expect("a free lock");
    lease.ensure(ms(1_000)).expect("it is held");
    let again = lease.reenter().expect("it is held");
    let begun = Instant::now();
    let waiting = std::thread::spawn(move || {
        let told = again.lost_within(SOON * 3);
        drop(again);
        told
    });
    std::thread::sleep(ms(50));
    redlock.close().expect("nodes are up");
    assert_eq!(waiting.join().expect("no panic"), Some(Loss::Closed));
    assert_eq!(
        lease.ensure(ms(1)).err().map(|error| error.to_string().contains("lost")),
        Some(true)
    );
    assert!(begun.elapsed() < SOON * 2);
}

/// 1. All nodes hang. 2. An extension is asked for. 3. It ends with the lease, and not with the node
/// timeout: what would come later is worth nothing.
#[tokio::test]
async fn an_extension_that_cannot_come_in_time_ends_with_the_lease() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).node_timeout(ms(8_000)).ttl(ms(9_000)).build();
    let redlock = redlock.expect("good settings");
    let lease = redlock.acquire("r").await.expect("a free lock");
    sleep(ms(4_000)).await;
    cluster.iter().for_each(Server::stop);
    let others = redlock.clone();
    let look = tokio::spawn(async move { others.status("r").await });
    sleep(ms(10)).await;
    tokio::select! {
        biased;
        extended = lease.extend(ms(20_000)) => {
            let refused = extended.expect_err("nobody answers");
            assert!(matches!(refused, ExtendError::Lost { reason: Loss::Expired, .. }), "{refused}");
        }
        _ = look => panic!("the node timeout ended before the extension did"),
    }
    cluster.iter().for_each(Server::cont);
}
