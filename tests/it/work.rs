//! Tests of work under a lock that takes a long time or fails.

use crate::{SOON, builder, client, eventually, ms};
use kit::{Cluster, Server};
use quorlock::{
    AcquireError, Lease, LeaseRef, Loss, Redlock, ReleaseOutcome, TryUsingError, UsingError,
};
use std::error::Error;
use std::time::Duration;
use tokio::time::sleep;

/// Creates a client with a short ttl. Returns the client, and a duration that is longer than the ttl, so work that
/// takes this long needs a renewal.
fn with_short_ttl(cluster: &Cluster) -> (Redlock, Duration) {
    let redlock = builder(cluster).ttl(ms(3_000)).build().expect("valid settings");
    (redlock, ms(4_500))
}

#[tokio::test]
async fn work_longer_than_the_ttl_keeps_the_lock() {
    let cluster = Cluster::start(3);
    let (redlock, long) = with_short_ttl(&cluster);
    let work = async |lease: &Lease| {
        sleep(long).await;
        lease.is_valid()
    };
    let viewed = async move |lease: LeaseRef| {
        sleep(long).await;
        lease.is_valid()
    };
    let fails = async |lease: &Lease| -> Result<(), String> {
        sleep(long).await;
        Err(format!("valid: {}", lease.is_valid()))
    };
    let (one, two, three, four, five) = tokio::join!(
        redlock.using("1", work),
        redlock.using_fut("2", viewed),
        redlock.acquire("3").using(work),
        redlock.acquire("4").using_fut(viewed),
        redlock.try_using("5", fails),
    );
    for done in [one, two, three, four] {
        assert!(matches!(done, Ok(true)), "{done:?}");
    }
    match five.expect_err("the work failed") {
        TryUsingError::Work { error, lock: None } => assert_eq!(error, "valid: true"),
        other => panic!("{other:?}"),
    }
    eventually("no key is left", || cluster.is_empty()).await;
}

#[cfg(feature = "blocking")]
#[test]
fn blocking_work_longer_than_the_ttl_keeps_the_lock() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).ttl(ms(3_000)).build_blocking().expect("valid settings");
    let work = |lease: &quorlock::blocking::Lease| {
        std::thread::sleep(ms(4_500));
        lease.is_valid()
    };
    let done = redlock.using("r", work);
    assert!(matches!(done, Ok(true)), "{done:?}");
    let done = redlock.try_using("r", |lease| if work(lease) { Err("valid") } else { Ok(()) });
    match done.expect_err("the work failed") {
        quorlock::blocking::Error::Failed(TryUsingError::Work { error, lock }) => {
            assert!(error == "valid" && lock.is_none());
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(redlock.try_using("r", |_| Ok::<_, String>(42)).ok(), Some(42));
    assert!(cluster.is_empty());
}

#[tokio::test]
async fn limit_ends_unresponsive_work() {
    let cluster = Cluster::start(3);
    let (redlock, _) = with_short_ttl(&cluster);
    let hang = async |_: &Lease| std::future::pending::<()>().await;
    let ended = redlock.acquire("r").auto_extend(ms(1_500)).using(hang).await;
    let ended = ended.expect_err("the work does not end");
    assert!(matches!(ended, UsingError::Lost { .. }), "{ended}");
    assert!(ended.source().is_some_and(<dyn Error>::is::<Loss>), "{ended:?}");
    let hang = async |_: &Lease| -> Result<(), String> { std::future::pending().await };
    let ended = redlock.acquire("r").auto_extend(ms(1_500)).wait(SOON).try_using(hang).await;
    let ended = ended.expect_err("the work does not end");
    assert!(matches!(ended, TryUsingError::Lock(UsingError::Lost { .. })), "{ended}");
    eventually("no key is left", || cluster.is_empty()).await;
}

#[derive(Debug, PartialEq, thiserror::Error)]
#[error("out of paper")]
struct NoPaper;

#[tokio::test]
async fn try_using_returns_output_or_error_and_releases() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let printed = redlock.try_using("r", async |_| Ok::<_, NoPaper>(3)).await;
    assert_eq!(printed.expect("the work succeeds"), 3);
    let viewed = redlock.try_using_fut("r", async |_| Ok::<_, NoPaper>(3)).await;
    assert_eq!(viewed.expect("the work succeeds"), 3);
    let elsewhere = redlock.clone();
    let spawned = async move { elsewhere.try_using("r", async |_| Err::<(), _>(NoPaper)).await };
    assert!(tokio::spawn(spawned).await.expect("no panic").is_err());

    let failed = redlock.try_using("r", async |_| Err::<(), _>(NoPaper)).await;
    eventually("the lock is released", || cluster.is_empty()).await;
    let failed = failed.expect_err("the work failed");
    assert_eq!(failed.to_string(), "the work failed: out of paper");
    assert!(failed.source().is_some_and(<dyn Error>::is::<NoPaper>));
    assert!(matches!(failed, TryUsingError::Work { error: NoPaper, lock: None }));

    let held = redlock.try_acquire("r").await.expect("the lock is free");
    let refused = redlock.acquire("r").wait(ms(50)).try_using(async |_| Ok::<_, NoPaper>(3)).await;
    let refused = refused.expect_err("it is held");
    let TryUsingError::Lock(UsingError::NotAcquired(AcquireError::Contended { .. })) = refused
    else {
        panic!("{refused}");
    };
    drop(held);
    let steal = async |is_failure: bool| {
        let work = async |_: &Lease| {
            cluster.iter().for_each(|node| node.set("s", "other"));
            if is_failure { Err(NoPaper) } else { Ok(3) }
        };
        let stolen = redlock.try_using("s", work).await.expect_err("taken over");
        assert!(cluster.iter().all(|node| node.del("s")), "the other client's key exists");
        stolen
    };
    match steal(true).await {
        TryUsingError::Work { error: NoPaper, lock: Some(lock) } => {
            let taken = UsingError::Overrun { output: (), found: Ok(ReleaseOutcome::TakenOver) };
            assert_eq!(lock.to_string(), taken.to_string());
        }
        other => panic!("{other}"),
    }
    match steal(false).await {
        TryUsingError::Lock(UsingError::Overrun { output, .. }) => assert_eq!(output, 3),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn failed_work_with_unconfirmed_release_returns_its_own_error() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).node_timeout(ms(200)).build().expect("valid settings");
    let hang = async |_: &Lease| {
        cluster.servers().iter().for_each(Server::stop);
        Err::<(), _>(NoPaper)
    };
    match redlock.try_using("r", hang).await.expect_err("the work fails") {
        TryUsingError::Work { error: NoPaper, lock: None } => {}
        other => panic!("{other:?}"),
    }
    cluster.servers().iter().for_each(Server::cont);
    eventually("the releases are delivered", || cluster.is_empty()).await;
}
