//! Tests of the blocking client's operations.

use crate::{SOON, builder, ms, multi_thread};
use kit::{Cluster, Server, eventually};
use quorlock::blocking::{Error, Redlock};
use quorlock::{AcquireError, Loss, ReleaseOutcome, UsingError};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

fn client(cluster: &Cluster) -> Redlock {
    builder(cluster).build_blocking().expect("valid settings")
}

#[test]
fn blocking_client_supports_all_operations() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.try_acquire("r").metadata("me").call().expect("the lock is free");
    assert!(lease.is_valid() && lease.resource() == b"r");
    let refused = redlock.acquire("r").wait(ms(50)).call().expect_err("it is held");
    assert!(
        matches!(refused, Error::Failed(AcquireError::Contended { held_here: true, .. })),
        "{refused}"
    );
    lease.extend(ms(60_000)).expect("nodes are up");
    assert!(lease.validity() > ms(40_000));
    let status = redlock.status("r").expect("the client is open");
    assert_eq!(status.holder().expect("it is held").metadata(), Some("me"));
    let again = lease.reenter().expect("it is held");
    assert_eq!(lease.release(), Ok(ReleaseOutcome::StillHeld { guards: 1 }));
    let adopted = redlock.adopt("r", again.value()).call().expect("the key exists");
    assert_eq!(again.release(), Ok(ReleaseOutcome::TakenOver));
    assert_eq!(adopted.release(), Ok(ReleaseOutcome::Released));
    let set = redlock.acquire_all(["b", "a"]).call().expect("the locks are free");
    assert_eq!(set.release_after(ms(200)), Ok(ReleaseOutcome::Released));
    assert_eq!(redlock.using("a", |lease| lease.is_valid()).ok(), Some(true), "free after a while");
    let _kept = redlock.try_acquire("x").call().expect("the lock is free");
    assert_eq!(redlock.force_release("x").expect("the client is open").granted(), 3);
    assert_eq!(redlock.release_all().expect("outside of a runtime").len(), 1);
    redlock.close().expect("releases are delivered");
    let refused = redlock.try_acquire("r").call().expect_err("closed");
    assert_eq!(refused, AcquireError::Closed.into());
    assert!(redlock.nodes().len() == 3);
}

#[test]
fn threads_exclude_each_other() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let inside = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let lease =
                        redlock.acquire("r").wait(SOON).call().expect("the lock becomes free");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
                    thread::sleep(ms(1));
                    inside.fetch_sub(1, Ordering::SeqCst);
                    assert_eq!(lease.release().expect("nodes are up"), ReleaseOutcome::Released);
                }
            });
        }
    });
}

#[test]
fn blocking_lease_is_renewed_and_reports_its_loss() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).node_timeout(ms(200)).build_blocking().expect("valid settings");
    let lease =
        redlock.acquire("r").ttl(ms(2_000)).auto_extend(SOON).call().expect("the lock is free");
    thread::sleep(ms(4_000));
    assert!(lease.is_valid(), "{:?}", lease.loss());
    assert_eq!(lease.lost_within(ms(10)), None);
    cluster.servers().iter().for_each(Server::stop);
    assert_eq!(lease.lost_within(SOON), Some(Loss::Expired));
    assert!(!lease.is_valid());
    cluster.servers().iter().for_each(Server::cont);
    let work = |lease: &quorlock::blocking::Lease| {
        assert!(lease.is_valid());
        cluster.iter().for_each(|node| node.set("other", "other"));
        "done"
    };
    match redlock.using("other", work).expect_err("stolen") {
        Error::Failed(UsingError::Overrun { output, found }) => {
            assert_eq!((output, found), ("done", Ok(ReleaseOutcome::TakenOver)));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn dropping_the_last_handle_delivers_pending_releases() {
    let cluster = Cluster::start(3);
    for _ in 0..20 {
        let lease = client(&cluster).try_acquire("r").call().expect("the lock is free");
        drop(lease);
        assert!(cluster.is_empty(), "delivered when the drop returns");
    }
    // While a node is stopped, the drop blocks for at most one connect timeout.
    let redlock = builder(&cluster).connect_timeout(ms(300)).node_timeout(ms(200));
    let redlock = redlock.build_blocking().expect("valid settings");
    let lease = redlock.try_acquire("r").call().expect("the lock is free");
    cluster[0].stop();
    drop(redlock);
    let started = Instant::now();
    drop(lease);
    let waited = started.elapsed();
    assert!(waited > ms(200) && waited < SOON, "waits for the stopped node: {waited:?}");
    cluster[0].cont();
}

#[tokio::test]
async fn blocking_client_refuses_calls_inside_a_runtime() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let refused = redlock.try_acquire("r").call().expect_err("a task must not wait");
    assert!(matches!(refused, Error::InsideRuntime), "{refused}");
    assert_eq!(redlock.status("r"), Err(Error::InsideRuntime));
    assert!(redlock.release_all().is_err());
    let task = tokio::spawn(async { tokio::task::yield_now().await });
    task.await.expect("the task can still yield");
    let on_a_thread = redlock.clone();
    let lease = tokio::task::spawn_blocking(move || on_a_thread.try_acquire("r").call());
    let lease = lease.await.expect("no panic").expect("the lock is free");
    assert!(lease.lost_within(SOON).is_none(), "it returns at once in a runtime");
    assert!(matches!(lease.extend(ms(10_000)), Err(Error::InsideRuntime)));
    assert_eq!(lease.release(), Err(Error::InsideRuntime));
    eventually(SOON, "it is released in the background", || cluster.is_empty());
    let _ = redlock.close();
    let refused = tokio::task::spawn_blocking(move || redlock.try_acquire("r").call());
    assert!(matches!(refused.await.expect("no panic"), Err(Error::Failed(AcquireError::Closed))));
}

#[test]
fn blocking_client_can_use_a_given_runtime() {
    let runtime = multi_thread(1);
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).runtime(runtime.handle().clone());
    let redlock = redlock.build_blocking().expect("valid settings");
    let lease = redlock.try_acquire("r").call().expect("the lock is free");
    assert_eq!(lease.release(), Ok(ReleaseOutcome::Released));
    redlock.close().expect("releases are delivered");
}
