//! Tests with runtimes that exist but do not run, and with runtimes that end while work on other runtimes waits.

use crate::{SOON, client, current_thread, eventually, granted_by_all, ms, multi_thread};
use kit::Cluster;
use quorlock::{Lease, Redlock, ReleaseError, ReleaseOutcome};
use std::thread;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Returns a runtime that owns the client's tasks but does not run them.
fn stopped_runtime(redlock: &Redlock) -> Runtime {
    let runtime = current_thread();
    runtime.block_on(async {
        let lease = redlock.try_acquire("stopped").await.expect("the lock is free");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    });
    runtime
}

/// Returns a lease that was acquired on a runtime that has ended.
fn orphan(redlock: &Redlock, resource: &str) -> Lease {
    current_thread()
        .block_on(async { redlock.try_acquire(resource).await.expect("the lock is free") })
}

#[test]
fn release_avoids_a_runtime_that_does_not_run() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let _kept = stopped_runtime(&redlock);
    let driven = current_thread();
    driven.block_on(async {
        let (before, after) = (orphan_elsewhere(&redlock, "1"), orphan_elsewhere(&redlock, "2"));
        // The client has no task on this runtime during the first drop, but has one during the second.
        drop(before);
        let lease = redlock.acquire("1").wait(SOON).await.expect("the lock is released");
        drop(after);
        let other = redlock.acquire("2").wait(SOON).await.expect("the lock is released");
        drop((lease, other));
        eventually("no key is left", || cluster.is_empty()).await;
    });
}

fn orphan_elsewhere(redlock: &Redlock, resource: &'static str) -> Lease {
    thread::scope(|scope| scope.spawn(|| orphan(redlock, resource)).join().expect("no panic"))
}

#[test]
fn lease_outside_of_runtimes_uses_a_running_runtime() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let _kept = stopped_runtime(&redlock);
    let driven = multi_thread(1);
    let _other = driven.block_on(async { redlock.try_acquire("other").await.expect("free") });
    let lease = orphan(&redlock, "r");
    futures::executor::block_on(async {
        lease.extend(ms(60_000)).await.expect("the running runtime has connections");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    });
}

/// Checks that the client's next use delivers all pending releases. The use is an acquire whose lease is dropped.
fn deliver_with_next_use(redlock: &Redlock, cluster: &Cluster) {
    current_thread().block_on(async {
        drop(redlock.try_acquire("last").await.expect("the lock is free"));
        eventually("no key is left", || cluster.is_empty()).await;
    });
}

#[test]
fn release_returns_its_outcome_if_the_runtime_ends() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    for round in 0..5 {
        let (acquiring, releasing) = (current_thread(), current_thread());
        let lease = acquiring.block_on(async { redlock.try_acquire("r").await.expect("free") });
        let all = acquiring.block_on(async { redlock.try_acquire("all").await.expect("free") });
        let outcome = releasing.block_on(async {
            // The releases are queued on a runtime that does not run, and then that runtime ends.
            let one = tokio::spawn(lease.release());
            let client = redlock.clone();
            let rest = tokio::spawn(async move { client.release_all().await });
            tokio::task::yield_now().await;
            thread::spawn(move || drop(acquiring)).join().expect("no panic");
            (one.await.expect("no panic"), rest.await.expect("no panic"))
        });
        assert_eq!(outcome.0, Ok(ReleaseOutcome::Released), "round {round}");
        assert_eq!(outcome.1, [(b"all".to_vec(), Ok(ReleaseOutcome::Released))], "round {round}");
        drop(all);
    }
    deliver_with_next_use(&redlock, &cluster);
}

/// Checks that a release reports `Released` or an unknown outcome if its runtime ends. A release that was sent but not
/// confirmed has an unknown outcome, which must never be reported as expired.
#[test]
fn release_during_a_shutdown_is_released_or_unknown() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let mut released = 0;
    for round in 0..40 {
        let acquiring = multi_thread(1);
        let lease = acquiring.block_on(async { redlock.acquire("r").wait(SOON).await });
        let lease = lease.expect("the lock is free");
        let ending = thread::spawn(move || {
            thread::sleep(Duration::from_micros(20 * round));
            drop(acquiring);
        });
        match current_thread().block_on(lease.release()) {
            Ok(ReleaseOutcome::Released) => released += 1,
            Err(ReleaseError::NoQuorum { .. }) => {}
            other => panic!("{other:?}"),
        }
        ending.join().expect("no panic");
    }
    println!("{released} of 40 releases are confirmed");
    deliver_with_next_use(&redlock, &cluster);
}

#[test]
fn extension_during_a_shutdown_succeeds() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    for round in 0..40 {
        let acquiring = multi_thread(1);
        let lease = acquiring.block_on(async { redlock.acquire("r").wait(SOON).await });
        let lease = lease.expect("the lock is free");
        let ending = thread::spawn(move || {
            thread::sleep(Duration::from_micros(20 * round));
            drop(acquiring);
        });
        let extended = current_thread().block_on(lease.extend(ms(60_000)));
        extended.unwrap_or_else(|failed| panic!("round {round}: {failed}"));
        ending.join().expect("no panic");
    }
    deliver_with_next_use(&redlock, &cluster);
}

#[test]
fn lease_of_an_idle_runtime_is_released_by_a_running_one() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let left = current_thread();
    let driven = current_thread();
    for outside in [true, false] {
        let lease = left.block_on(granted_by_all(&redlock, "r"));
        if outside {
            drop(lease);
        } else {
            driven.block_on(async { drop(lease) });
        }
        driven.block_on(async {
            let next = redlock
                .acquire("r")
                .wait(SOON)
                .await
                .expect("the lock is released by this runtime");
            assert_eq!(next.release().await, Ok(ReleaseOutcome::Released));
            eventually("no key is left", || cluster.is_empty()).await;
        });
    }
    // The runtime runs now, so it delivers the release.
    let lease = left.block_on(async { redlock.acquire("r").await.expect("the lock is free") });
    drop(lease);
    left.block_on(eventually("no key is left", || cluster.is_empty()));
}
