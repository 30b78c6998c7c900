//! Tests of futures that wait for the end of a lease, or for the time shortly before the end.

use crate::{MAX_TTL, SOON, builder, ms};
use futures::FutureExt;
use kit::{Cluster, Server};
use quorlock::{ConfigError, Ended, ExtendError, LeaseRef, Loss, Redlock, ReleaseOutcome};
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

fn client(cluster: &Cluster) -> Redlock {
    builder(cluster).node_timeout(ms(200)).ttl(ms(3_000)).build().expect("valid settings")
}

fn waits(view: LeaseRef) -> JoinHandle<Ended> {
    tokio::spawn(async move { view.ended().await })
}

async fn end_of(waiting: JoinHandle<Ended>) -> Ended {
    timeout(SOON, waiting).await.expect("the end is reported").expect("no panic")
}

#[tokio::test]
async fn ended_reports_every_kind_of_end() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let acquire = |resource: &'static str| redlock.acquire(resource).ttl(MAX_TTL);

    let released = acquire("released").await.expect("the lock is free");
    let waiting = waits(released.view());
    let many: Vec<_> = (0..600).map(|_| waits(released.view())).collect();
    sleep(ms(50)).await;
    assert!(!waiting.is_finished());
    assert_eq!(released.release().await, Ok(ReleaseOutcome::Released));
    assert_eq!(end_of(waiting).await, Ended::Released);
    for one in many {
        assert_eq!(end_of(one).await, Ended::Released);
    }

    let dropped = acquire("dropped").auto_extend_forever().await.expect("the lock is free");
    let (view, waiting) = (dropped.view(), waits(dropped.view()));
    sleep(ms(50)).await;
    drop(dropped);
    assert_eq!(end_of(waiting).await, Ended::Released);
    assert_eq!(view.ended().await, Ended::Released, "also reported to later calls");

    let first = acquire("twice").await.expect("the lock is free");
    let second = first.reenter().expect("it is held");
    let waiting = waits(first.view());
    assert_eq!(first.release().await, Ok(ReleaseOutcome::StillHeld { guards: 1 }));
    sleep(ms(50)).await;
    assert!(!waiting.is_finished(), "another guard holds the lock");
    drop(second);
    assert_eq!(end_of(waiting).await, Ended::Released);

    let expired = redlock.acquire("expired").ttl(ms(600)).await.expect("the lock is free");
    assert_eq!(end_of(waits(expired.view())).await, Ended::Lost(Loss::Expired));
    assert_eq!(Ended::Lost(Loss::Expired).to_string(), "lost: its validity ended");

    let closed = acquire("closed").await.expect("the lock is free");
    let waiting = waits(closed.view());
    sleep(ms(50)).await;
    redlock.close().await.expect("nodes are up");
    assert_eq!(end_of(waiting).await, Ended::Lost(Loss::Closed));
}

#[tokio::test]
async fn endangered_resolves_before_the_end_unless_renewed() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.acquire("r").auto_extend_forever().await.expect("the lock is free");
    let margin = ms(900);
    assert!(timeout(ms(5_000), lease.endangered(margin)).await.is_err(), "the lease is renewed");
    let (view, other) = (lease.view(), lease.view());
    let endangered = tokio::spawn(async move { view.endangered(ms(900)).await });
    let until_the_end = tokio::spawn(async move { other.endangered(Duration::ZERO).await });
    cluster.servers().iter().for_each(Server::stop);
    let left = timeout(SOON, endangered).await.expect("the danger is reported").expect("no panic");
    assert!(left <= margin, "{left:?}");
    let left = timeout(SOON, until_the_end).await.expect("the end is reported").expect("no panic");
    assert_eq!(left, Duration::ZERO);
    assert_eq!(lease.loss(), Some(Loss::Expired));
    assert_eq!(lease.endangered(margin).await, Duration::ZERO, "at once");
    cluster.servers().iter().for_each(Server::cont);
}

#[tokio::test]
async fn endangered_resolves_at_once_below_margin_and_at_release() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.acquire("r").ttl(MAX_TTL).await.expect("the lock is free");
    let left =
        timeout(SOON, lease.endangered(MAX_TTL)).await.expect("the validity is below the margin");
    assert!(left > MAX_TTL / 2 && left < MAX_TTL);
    let short = redlock.acquire("short").ttl(ms(6_000)).await.expect("the lock is free");
    let left = timeout(SOON, short.endangered(ms(5_000)))
        .await
        .expect("the validity falls below the margin");
    assert!(left <= ms(5_000));
    short.extend(MAX_TTL).await.expect("nodes are up");
    let view = lease.view();
    let waiting = tokio::spawn(async move { view.endangered(ms(1_000)).await });
    sleep(ms(50)).await;
    assert!(!waiting.is_finished());
    drop(lease);
    let left = timeout(SOON, waiting).await.expect("the release is reported").expect("no panic");
    assert_eq!(left, Duration::ZERO);
}

#[tokio::test]
async fn release_after_the_first_poll_is_reported() {
    let cluster = Cluster::start(3);
    let lease = client(&cluster).acquire("r").ttl(MAX_TTL).await.expect("the lock is free");
    let view = lease.view();
    let mut ended = pin!(view.ended());
    let mut in_danger = pin!(view.endangered(ms(1_000)));
    // No await separates these polls from the release. A future that subscribed only at a later poll would miss the
    // release.
    assert!(ended.as_mut().now_or_never().is_none());
    assert!(in_danger.as_mut().now_or_never().is_none());
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    assert_eq!(timeout(SOON, ended).await.expect("the release is reported"), Ended::Released);
    assert_eq!(timeout(SOON, in_danger).await.expect("the release is reported"), Duration::ZERO);
}

fn scripts(cluster: &Cluster) -> u64 {
    cluster.iter().map(|node| node.calls("evalsha")).sum()
}

#[tokio::test]
async fn ensure_extends_at_most_once() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build().expect("valid settings");
    let lease = redlock.acquire("r").ttl(ms(10_000)).await.expect("the lock is free");
    cluster.iter().for_each(Server::reset_stats);
    lease.ensure(Duration::ZERO).await.expect("it is held");
    lease.ensure(ms(2_000)).await.expect("it is held");
    assert_eq!(scripts(&cluster), 0, "no command was sent");

    // The ttl gives a longer validity than requested, so the client extends the lease by the ttl.
    sleep(ms(1_500)).await;
    lease.ensure(ms(9_000)).await.expect("nodes are up");
    assert!(scripts(&cluster) > 0);
    assert!(lease.validity() >= ms(5_000), "{:?}", lease.validity());
    // The ttl would give shorter validities than these.
    for asked in [20_000, 60_000, 3_000_000] {
        lease.ensure(ms(asked)).await.expect("nodes are up");
        let validity = lease.validity();
        let bounds = ms(asked - 5_000)..ms(asked + 5_000);
        assert!(bounds.contains(&validity), "{validity:?} for {asked} ms");
    }

    // The client accepts the longest possible validity and refuses a longer one.
    let most = MAX_TTL.saturating_sub(MAX_TTL / 100 + ms(2));
    for validity in [most + ms(1), Duration::MAX] {
        let refused = lease.ensure(validity).await.expect_err("more than max_ttl gives");
        let reason = ConfigError::EnsureExceedsMax { validity, max_ttl: MAX_TTL };
        assert_eq!(
            refused,
            ExtendError::Invalid(reason),
            "the error contains the requested validity"
        );
    }
    lease.ensure(most.saturating_sub(ms(5_000))).await.expect("nodes are up");

    let started = Instant::now();
    cluster.servers()[..2].iter().for_each(Server::stop);
    let refused =
        lease.ensure(most.saturating_sub(ms(100))).await.expect_err("one node is no quorum");
    assert!(matches!(refused, ExtendError::NoQuorum { .. }), "{refused}");
    assert!(lease.is_valid() && started.elapsed() < SOON);
    cluster.servers()[..2].iter().for_each(Server::cont);

    let view = lease.view();
    drop(lease);
    assert_eq!(view.ensure(ms(1)).await, Err(ExtendError::Released));
    assert_eq!(view.ensure(Duration::ZERO).await, Err(ExtendError::Released));
}

#[cfg(feature = "blocking")]
#[test]
fn blocking_wait_for_loss_ends_when_the_client_closes() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build_blocking().expect("valid settings");
    let lease = redlock.acquire("r").auto_extend_forever().call().expect("the lock is free");
    lease.ensure(ms(1_000)).expect("it is held");
    let again = lease.reenter().expect("it is held");
    let started = Instant::now();
    let waiting = std::thread::spawn(move || {
        let loss = again.lost_within(SOON * 3);
        drop(again);
        loss
    });
    std::thread::sleep(ms(50));
    redlock.close().expect("nodes are up");
    assert_eq!(waiting.join().expect("no panic"), Some(Loss::Closed));
    assert_eq!(
        lease.ensure(ms(1)).err().map(|error| error.to_string().contains("lost")),
        Some(true)
    );
    assert!(started.elapsed() < SOON * 2);
}

/// Checks that an extension returns when the lease ends, although the node timeout is later. A later result would be
/// useless.
///
/// 1. All nodes are stopped.
/// 2. An extension begins.
/// 3. The lease ends, and the extension returns.
#[tokio::test]
async fn extension_ends_with_the_lease_if_nodes_are_stopped() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).node_timeout(ms(8_000)).ttl(ms(9_000)).build();
    let redlock = redlock.expect("valid settings");
    let lease = redlock.acquire("r").await.expect("the lock is free");
    sleep(ms(4_000)).await;
    cluster.iter().for_each(Server::stop);
    let other = redlock.clone();
    let status = tokio::spawn(async move { other.status("r").await });
    sleep(ms(10)).await;
    tokio::select! {
        biased;
        extended = lease.extend(ms(20_000)) => {
            let refused = extended.expect_err("no node replies");
            assert!(matches!(refused, ExtendError::Lost { reason: Loss::Expired, .. }), "{refused}");
        }
        _ = status => panic!("the node timeout ended before the extension did"),
    }
    cluster.iter().for_each(Server::cont);
}
