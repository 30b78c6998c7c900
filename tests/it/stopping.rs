//! Tests of work that is notified shortly before its lock ends.

use crate::{SOON, builder, client, eventually, ms};
use kit::{Cluster, Server};
use quorlock::{AcquireError, ConfigError, Lease, LeaseRef, Loss, ReleaseOutcome, UsingError};
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::sleep;

#[tokio::test]
async fn work_is_notified_in_time_if_renewals_fail() {
    let cluster = Cluster::start(3);
    let redlock =
        builder(&cluster).ttl(ms(6_000)).node_timeout(ms(500)).build().expect("valid settings");
    let servers = cluster.servers();
    let orderly = async |lease: &Lease| {
        servers.iter().for_each(Server::stop);
        let left = lease.stopping().await;
        (left, lease.is_valid())
    };
    let margin = ms(3_000);
    let ended = redlock.acquire("r").stop_before(margin).using(orderly).await;
    servers.iter().for_each(Server::cont);
    let (left, was_valid) = ended.expect("the work ended under a valid lease");
    assert!(was_valid && left <= margin && left > Duration::ZERO, "{left:?}");
    eventually("the releases are delivered", || cluster.is_empty()).await;

    let notified = AtomicBool::new(false);
    let stubborn = |lease: LeaseRef| {
        servers.iter().for_each(Server::stop);
        let notified = &notified;
        async move {
            lease.stopping().await;
            notified.store(true, Ordering::SeqCst);
            pending::<()>().await;
        }
    };
    let ended = redlock.acquire("r").wait(SOON).stop_before(margin).using_fut(stubborn).await;
    servers.iter().for_each(Server::cont);
    let ended = ended.expect_err("the work does not end");
    assert!(matches!(ended, UsingError::Lost { reason: Loss::Expired }), "{ended}");
    assert!(notified.load(Ordering::SeqCst), "the work was notified before");
    eventually("the releases are delivered", || cluster.is_empty()).await;
}

#[tokio::test]
async fn work_with_a_renewed_lease_is_notified_at_its_limit() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).ttl(ms(3_000)).build().expect("valid settings");
    let unbounded = async |lease: &Lease| {
        tokio::select! {
            left = lease.stopping() => Some(left),
            () = sleep(ms(4_500)) => None,
        }
    };
    let bounded = async |lease: &Lease| (lease.stopping().await, lease.is_valid());
    let (one, two) = tokio::join!(
        redlock.acquire("1").stop_before(ms(200)).using(unbounded),
        redlock.acquire("2").stop_before(ms(1_500)).auto_extend(ms(5_000)).using(bounded),
    );
    assert_eq!(one.expect("the lease is renewed"), None);
    let (left, was_valid) = two.expect("the work ended under a valid lease");
    assert!(was_valid && left <= ms(1_500), "{left:?}");
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn stopping_without_margin_resolves_at_the_end() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.try_acquire("r").await.expect("the lock is free");
    let view = lease.view();
    let stopping = tokio::spawn(async move { view.stopping().await });
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    assert_eq!(stopping.await.expect("no panic"), Duration::ZERO);
    let lease = redlock.try_acquire("r").stop_before(ms(29_000)).await.expect("the lock is free");
    let inner = lease.reenter().expect("it is held");
    for view in [lease.view(), inner.view()] {
        assert!(view.stopping().await > Duration::ZERO, "the validity falls below the margin");
    }
}

#[tokio::test]
async fn too_long_margin_is_refused() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let validity = ms(30_000 - 302);
    let two_thirds = validity / 3 * 2;
    for (margin, max_hold, limit) in [
        (validity, None, validity),
        (Duration::MAX, None, validity),
        (two_thirds, Some(Duration::MAX), two_thirds),
        (ms(5_000), Some(ms(5_000)), ms(5_000)),
    ] {
        let acquire = redlock.try_acquire("r").stop_before(margin);
        let acquire = match max_hold {
            Some(max_hold) => acquire.auto_extend(max_hold),
            None => acquire,
        };
        let refused = acquire.await.expect_err("the margin is too long");
        let reason = ConfigError::MarginTooLong { margin, limit };
        assert_eq!(refused, AcquireError::Invalid(reason));
        assert!(refused.to_string().contains("stop_before()"), "{refused}");
    }
    let refused = redlock.acquire("r").stop_before(two_thirds).using(async |_| ()).await;
    assert!(matches!(refused, Err(UsingError::NotAcquired(AcquireError::Invalid(_)))));
    let nearly = two_thirds.saturating_sub(ms(1));
    let done = redlock.acquire("r").stop_before(nearly).using(async |_| 42).await;
    assert_eq!(done.expect("the margin is accepted"), 42);
}
