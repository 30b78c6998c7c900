//! Tests of acquires that wait in a queue behind a future that is dropped or no longer polled.

use crate::{SOON, builder, eventually, ms, pending_acquire, warm_up};
use futures::FutureExt;
use kit::Cluster;
use quorlock::{Acquire, AcquireError, Redlock, ReleaseOutcome, RetryPolicy};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Creates a client whose retry delay exceeds every test, so only a notification can wake its waiters.
async fn client_without_retries(cluster: &Cluster) -> Redlock {
    let never = RetryPolicy::fixed(Duration::from_mins(10));
    let redlock = builder(cluster).ttl(ms(600_000)).retry(never).wait(SOON * 3);
    let redlock = redlock.build().expect("valid settings");
    warm_up(&redlock).await;
    redlock
}

/// Polls `acquire` until the nodes have refused it and it waits.
async fn refused(acquire: &mut Acquire) {
    for _ in 0..30 {
        assert!(acquire.now_or_never().is_none(), "it is held");
        sleep(ms(10)).await;
    }
}

#[tokio::test]
async fn waiter_that_bypassed_an_unpolled_one_is_notified() {
    let cluster = Cluster::start(3);
    let redlock = client_without_retries(&cluster).await;
    let held = redlock.try_acquire("r").await.expect("the lock is free");
    let mut unpolled = redlock.acquire("r");
    refused(&mut unpolled).await;
    let second = tokio::spawn(redlock.acquire("r"));
    sleep(ms(50)).await;
    let third = tokio::spawn(redlock.acquire("r"));
    sleep(ms(50)).await;
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    let held = timeout(SOON, second).await.expect("the first is bypassed").expect("no panic");
    // The third acquire now competes, and the first acquire is back at its place in the queue.
    sleep(ms(100)).await;
    refused(&mut unpolled).await;
    assert_eq!(held.expect("free").release().await, Ok(ReleaseOutcome::Released));
    let lease = timeout(SOON, third).await.expect("the first is bypassed").expect("no panic");
    drop((lease.expect("free"), unpolled));
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn dropped_future_notifies_waiters_of_all_its_keys() {
    let cluster = Cluster::start(3);
    let redlock = client_without_retries(&cluster).await;
    let all = || redlock.acquire_all(["p", "q"]);
    for mut won in [redlock.acquire("q"), redlock.try_acquire("q"), all()] {
        assert!((&mut won).now_or_never().is_none(), "no node has replied yet");
        eventually("the lock is acquired", || cluster.all_have("q")).await;
        let waiting = tokio::spawn(redlock.acquire("q"));
        sleep(ms(200)).await;
        drop(won);
        let lease =
            timeout(SOON, waiting).await.expect("the waiter is notified").expect("no panic");
        assert_eq!(lease.expect("free").release().await, Ok(ReleaseOutcome::Released));
        eventually("no key is left", || cluster.is_empty()).await;
    }
    // The client revokes the lease at the deadline of its acquire, or because another acquire wants one of its keys.
    for wait in [ms(700), SOON * 3] {
        let mut won = all().wait(wait);
        assert!((&mut won).now_or_never().is_none(), "no node has replied yet");
        eventually("the lock is acquired", || cluster.all_have("q")).await;
        let lease = timeout(SOON, redlock.acquire("q"))
            .await
            .expect("the waiter is notified")
            .expect("free");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
        drop(won);
        eventually("no key is left", || cluster.is_empty()).await;
    }
}

/// Spawns `count` tasks that each acquire the lock and hold it for 50 ms. Returns the tasks, and a counter of those
/// that have acquired the lock.
fn queue(redlock: &Redlock, count: usize) -> (Arc<AtomicUsize>, Vec<JoinHandle<()>>) {
    let served = Arc::<AtomicUsize>::default();
    let waiting = (0..count).map(|_| {
        let (acquire, served) = (redlock.acquire("r"), served.clone());
        tokio::spawn(async move {
            let lease = acquire.await.expect("the lock becomes free");
            served.fetch_add(1, Ordering::SeqCst);
            sleep(ms(50)).await;
            drop(lease);
        })
    });
    let waiting = waiting.collect();
    (served, waiting)
}

#[tokio::test]
async fn caller_with_revoked_lease_moves_to_the_end_of_the_queue() {
    let cluster = Cluster::start(3);
    let redlock = client_without_retries(&cluster).await;
    let mut unpolled = redlock.acquire("r");
    assert!((&mut unpolled).now_or_never().is_none(), "no node has replied yet");
    eventually("the lock is acquired", || cluster.all_have("r")).await;
    let (served, waiting) = queue(&redlock, 20);
    eventually("the lease is revoked", || served.load(Ordering::SeqCst) > 0).await;
    drop(unpolled.await.expect("the lock becomes free"));
    let before = served.load(Ordering::SeqCst);
    for task in waiting {
        task.await.expect("no panic");
    }
    assert!(before > 15, "{before} of 20 were served before it");
}

#[tokio::test]
async fn close_ends_acquires_queued_behind_unpolled_futures() {
    let cluster = Cluster::start(3);
    let (redlock, other) =
        (client_without_retries(&cluster).await, client_without_retries(&cluster).await);
    let held = other.try_acquire("r").await.expect("the lock is free");
    let mut unpolled = redlock.acquire("r");
    refused(&mut unpolled).await;
    let behind: Vec<_> = (0..3).map(|_| tokio::spawn(redlock.acquire("r"))).collect();
    sleep(ms(50)).await;
    redlock.close().await.expect("no release is pending");
    for waiting in behind {
        let ended =
            timeout(SOON, waiting).await.expect("the waiter is notified").expect("no panic");
        assert!(matches!(ended, Err(AcquireError::Closed)), "{ended:?}");
    }
    assert!(matches!(unpolled.await, Err(AcquireError::Closed)));
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
}

/// A waker that drops the contained acquire, which belongs to the same client, when the client calls `wake`.
struct Dropper(Mutex<Option<Acquire>>);

impl Wake for Dropper {
    fn wake(self: Arc<Self>) {
        let acquire = self.0.lock().expect("no panic").take();
        drop(acquire);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waker_can_drop_another_acquire_of_its_client() {
    let cluster = Cluster::start(3);
    let redlock = client_without_retries(&cluster).await;
    let held = redlock.try_acquire("r").await.expect("the lock is free");
    let mut first = redlock.acquire("r");
    refused(&mut first).await;
    let other = pending_acquire(|| redlock.acquire("other"));
    let dropper = Arc::new(Dropper(Mutex::new(Some(other))));
    let waker = Waker::from(dropper.clone());
    let mut second = Box::pin(redlock.acquire("r"));
    assert!(second.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(), "it is held");
    // Dropping the first acquire passes the turn to the second.
    let dropping = thread::spawn(move || drop(first));
    let started = Instant::now();
    while !dropping.is_finished() {
        assert!(started.elapsed() < SOON, "the drop is blocked");
        sleep(ms(5)).await;
    }
    // The release of the lock calls the waker, if the drop has not done so.
    drop(held);
    eventually("the other acquire is dropped", || dropper.0.lock().expect("no panic").is_none())
        .await;
    drop(second);
    eventually("no key is left", || cluster.is_empty()).await;
}
