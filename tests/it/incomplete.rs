//! Tests with runtimes that were built without I/O or without timers.

use crate::{SOON, builder, client, ms, multi_thread};
use kit::Cluster;
use quorlock::{AcquireError, ClientError, Lease, Loss, NoRuntime, ReleaseOutcome};
use std::future::Future;
use std::thread;
use tokio::runtime::{Builder, Runtime};

fn build(builder: &mut Builder) -> Runtime {
    builder.build().expect("a runtime")
}

fn without_io() -> [Runtime; 2] {
    [build(&mut Builder::new_current_thread()), build(Builder::new_current_thread().enable_time())]
}

fn without_timers() -> Runtime {
    build(Builder::new_current_thread().enable_io())
}

fn without_drivers() -> impl Iterator<Item = Runtime> {
    without_io().into_iter().chain([without_timers()])
}

/// Runs `future` on `runtime` from a separate thread. Panics if the future panics.
fn run<T: Send>(runtime: &Runtime, future: impl Future<Output = T> + Send) -> T {
    thread::scope(|scope| scope.spawn(|| runtime.block_on(future)).join().expect("no panic"))
}

#[test]
fn client_pinned_to_a_runtime_without_io_reports_no_runtime() {
    let cluster = Cluster::start(3);
    for runtime in without_io() {
        let pinned =
            builder(&cluster).runtime(runtime.handle().clone()).build().expect("valid settings");
        let acquired = multi_thread(1).block_on(pinned.try_acquire("r").into_future());
        let refused = acquired.expect_err("the given runtime has no I/O");
        let reason = NoRuntime::MissingDriver;
        assert_eq!(refused, AcquireError::NoRuntime { reason: reason.clone() });
        assert!(refused.to_string().contains("enable_all()"), "{refused}");
        let refused = ClientError::NoRuntime { reason };
        assert_eq!(run(&runtime, pinned.status("r")), Err(refused.clone()));
        assert_eq!(run(&runtime, pinned.check()), Err(refused.clone()));
        assert_eq!(run(&runtime, pinned.force_release("r")), Err(refused));
        assert!(run(&runtime, pinned.release_all()).is_empty());
        run(&runtime, pinned.close()).expect("no release is pending");
    }
    assert!(cluster.is_empty());
}

#[test]
fn client_pinned_to_a_runtime_without_timers_works() {
    let cluster = Cluster::start(3);
    let runtime = without_timers();
    let pinned = builder(&cluster).runtime(runtime.handle().clone()).ttl(ms(3_000));
    let pinned = pinned.build().expect("valid settings");
    run(&runtime, async {
        let kept = pinned.acquire("kept").auto_extend(SOON * 3).await.expect("the lock is free");
        let short = pinned.acquire("short").await.expect("the lock is free");
        assert_eq!(short.lost().await, Loss::Expired);
        assert!(kept.is_valid(), "{:?}", kept.loss());
        assert_eq!(kept.release().await, Ok(ReleaseOutcome::Released));
        pinned.close().await.expect("nodes are up");
    });
    assert!(cluster.is_empty());
}

#[test]
fn lease_works_on_a_runtime_without_drivers() {
    let cluster = Cluster::start(3);
    let (redlock, own) = (client(&cluster), multi_thread(1));
    let acquire = |resource: &'static str| -> Lease {
        own.block_on(async { redlock.try_acquire(resource).await.expect("the lock is free") })
    };
    for runtime in without_drivers() {
        let lease = acquire("r");
        run(&runtime, lease.extend(ms(60_000)))
            .expect("the client's first runtime drives its connections");
        let outcome = run(&runtime, lease.release()).expect("the first runtime drives them");
        assert_eq!(outcome, ReleaseOutcome::Released);
        let lease = acquire("dropped");
        run(&runtime, async move { drop(lease) });
        kit::eventually(SOON, "the lock is released", || cluster.is_empty());
        let lease = acquire("all");
        let released = run(&runtime, redlock.release_all());
        assert_eq!(released.len(), 1);
        assert!(!lease.is_valid());
        kit::eventually(SOON, "the lock is released", || cluster.is_empty());
    }
}

#[test]
fn lease_whose_runtime_has_ended_works_on_one_without_drivers() {
    let cluster = Cluster::start(3);
    for runtime in without_drivers() {
        let redlock = client(&cluster);
        let orphan = || -> Lease {
            let own = multi_thread(1);
            own.block_on(async { redlock.acquire("r").wait(SOON).await.expect("the lock is free") })
        };
        let lease = orphan();
        run(&runtime, lease.extend(ms(60_000))).expect("over new connections");
        let outcome = run(&runtime, lease.release()).expect("over new connections");
        assert_eq!(outcome, ReleaseOutcome::Released);
        drop(orphan());
        kit::eventually(SOON, "no key is left", || cluster.is_empty());
        let _lease = orphan();
        assert_eq!(run(&runtime, redlock.release_all()).len(), 1);
        run(&runtime, redlock.close()).expect("no release is pending");
        assert!(cluster.is_empty());
    }
}
