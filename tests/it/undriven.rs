//! Runtimes that live and that nobody drives, and runtimes that end while others wait.

use crate::{SOON, client, current_thread, eventually, granted_by_all, ms, multi_thread};
use kit::Cluster;
use quorlock::{Lease, Redlock, ReleaseError, ReleaseOutcome};
use std::thread;
use std::time::Duration;
use tokio::runtime::Runtime;

/// A runtime that has the client's tasks, lives, and is not in `block_on` any more.
fn undriven(redlock: &Redlock) -> Runtime {
    let runtime = current_thread();
    runtime.block_on(async {
        let lease = redlock.try_acquire("undriven").await.expect("a free lock");
        lease.release().await.expect("nodes are up");
    });
    runtime
}

/// A lease whose runtime is gone.
fn orphan(redlock: &Redlock, resource: &str) -> Lease {
    current_thread().block_on(async { redlock.try_acquire(resource).await.expect("a free lock") })
}

#[test]
fn a_release_passes_by_a_runtime_that_nobody_drives() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let _kept = undriven(&redlock);
    let driven = current_thread();
    driven.block_on(async {
        let (before, after) = (orphan_elsewhere(&redlock, "1"), orphan_elsewhere(&redlock, "2"));
        // The tasks of this runtime are not there yet, and then they are.
        drop(before);
        let lease = redlock.acquire("1").wait(SOON).await.expect("released");
        drop(after);
        let other = redlock.acquire("2").wait(SOON).await.expect("released");
        drop((lease, other));
        eventually("no key is left", || cluster.is_empty()).await;
    });
}

fn orphan_elsewhere(redlock: &Redlock, resource: &'static str) -> Lease {
    thread::scope(|scope| scope.spawn(|| orphan(redlock, resource)).join().expect("no panic"))
}

#[test]
fn outside_of_runtimes_a_lease_is_served_by_whichever_runtime_is_driven() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let _kept = undriven(&redlock);
    let driven = multi_thread(1);
    let _other = driven.block_on(async { redlock.try_acquire("other").await.expect("free") });
    let lease = orphan(&redlock, "r");
    futures::executor::block_on(async {
        lease.extend(ms(60_000)).await.expect("the driven one has a connection");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    });
}

/// Waits for the pending releases, which the next use of the client delivers.
fn deliver_with_next_use(redlock: &Redlock, cluster: &Cluster) {
    current_thread().block_on(async {
        drop(redlock.try_acquire("last").await.expect("a free lock"));
        eventually("no key is left", || cluster.is_empty()).await;
    });
}

#[test]
fn a_release_that_is_awaited_tells_the_outcome_though_the_runtime_of_the_acquire_ends() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    for round in 0..5 {
        let (acquiring, releasing) = (current_thread(), current_thread());
        let lease = acquiring.block_on(async { redlock.try_acquire("r").await.expect("free") });
        let all = acquiring.block_on(async { redlock.try_acquire("all").await.expect("free") });
        let outcome = releasing.block_on(async {
            // The releases are in the mailboxes of a runtime that nobody drives; then it ends.
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

/// The release may have been written, and not answered, when the runtime ended: then its outcome is
/// unknown, and said to be. It is never said to have expired.
#[test]
fn a_release_at_whatever_moment_of_a_shutdown_is_released_or_unknown_and_its_keys_go() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let mut released = 0;
    for round in 0..40 {
        let acquiring = multi_thread(1);
        let lease = acquiring.block_on(async { redlock.acquire("r").wait(SOON).await });
        let lease = lease.expect("free in time");
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
    println!("{released} of 40 are known to be released");
    deliver_with_next_use(&redlock, &cluster);
}

#[test]
fn a_lease_of_a_runtime_that_nobody_drives_any_more_is_released_by_one_that_is_driven() {
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
            let next = redlock.acquire("r").wait(SOON).await.expect("released by this runtime");
            next.release().await.expect("nodes are up");
            eventually("no key is left", || cluster.is_empty()).await;
        });
    }
    // By its own task, if that is the one that is driven.
    let lease = left.block_on(async { redlock.acquire("r").await.expect("a free lock") });
    drop(lease);
    left.block_on(eventually("no key is left", || cluster.is_empty()));
}
