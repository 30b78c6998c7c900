//! Tests of one client that is used on several runtimes, after its runtime has ended, and without a runtime.

use crate::{SOON, builder, client, current_thread, eventually, ms, multi_thread};
use kit::{Cluster, Rerun};
use quorlock::{AcquireError, Lease, NoRuntime, ReleaseOutcome};
use std::panic;
use std::process;
use std::sync::Arc;
use std::thread;

#[test]
fn lease_stays_usable_after_its_runtime_ends() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let acquire = || -> Lease {
        let runtime = current_thread();
        runtime.block_on(async { redlock.try_acquire("r").await.expect("the lock is free") })
    };
    let lease = acquire();
    assert!(lease.is_valid());
    let runtime = current_thread();
    runtime.block_on(async {
        lease.extend(ms(60_000)).await.expect("over new connections");
        assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Released);
    });

    let lease = acquire();
    // The library's own runtime delivers the release.
    drop(lease);
    kit::eventually(SOON, "no key is left", || cluster.is_empty());
}

#[test]
fn release_of_an_ended_runtime_is_delivered_by_another() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let alive = multi_thread(2);
    let kept =
        alive.block_on(async { redlock.try_acquire("kept").await.expect("the lock is free") });
    let lease = current_thread().block_on(async { redlock.try_acquire("r").await.expect("free") });
    drop(lease);
    alive.block_on(eventually("the release is delivered without another call", || {
        cluster.none_has("r")
    }));
    assert!(kept.is_valid());
}

#[test]
fn pinned_client_works_outside_its_runtime_until_its_end() {
    let cluster = Cluster::start(3);
    let runtime = multi_thread(2);
    let pinned =
        builder(&cluster).runtime(runtime.handle().clone()).build().expect("valid settings");
    futures::executor::block_on(async {
        let lease = pinned.try_acquire("r").await.expect("the lock is free");
        let held = pinned.acquire("r").wait(ms(300)).await.expect_err("it is held");
        assert!(matches!(held, AcquireError::Contended { .. }), "{held:?}");
        lease.extend(ms(40_000)).await.expect("the lease is held");
        assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Released);
    });
    drop(runtime);
    let refused = futures::executor::block_on(pinned.try_acquire("r").into_future());
    let reason = NoRuntime::ShutDown;
    assert_eq!(refused.expect_err("the runtime has ended"), AcquireError::NoRuntime { reason });
}

#[test]
fn runtime_shutdown_ends_acquires_of_another_runtime() {
    let cluster = Cluster::start(3);
    cluster.servers().iter().for_each(kit::Server::stop);
    let pinned_on = multi_thread(2);
    let redlock = builder(&cluster).node_timeout(ms(20_000)).runtime(pinned_on.handle().clone());
    let redlock = Arc::new(redlock.build().expect("valid settings"));
    let waiter = thread::spawn({
        let redlock = redlock.clone();
        move || current_thread().block_on(async move { redlock.try_acquire("r").await })
    });
    thread::sleep(ms(200));
    let started = std::time::Instant::now();
    drop(pinned_on);
    let refused = waiter.join().expect("no panic").expect_err("no node replies");
    assert!(started.elapsed() < ms(15_000), "the acquire waited for the node timeout");
    let AcquireError::NoQuorum { report } = &refused else { panic!("{refused:?}") };
    assert!(report.to_string().contains("the runtime has shut down"), "{report}");
    cluster.servers().iter().for_each(kit::Server::cont);
}

#[test]
#[ignore = "runs in a process that the test below starts"]
fn exiting_panic_hook() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    panic::set_hook(Box::new(|_| process::exit(3)));
    let acquired = runtime.expect("a runtime").block_on(async { redlock.try_acquire("r").await });
    drop(acquired.expect("the client needs no timers of its runtime"));
    drop(panic::take_hook());
}

#[test]
fn runtime_without_timers_does_not_run_the_panic_hook() {
    let test = "runtimes::exiting_panic_hook";
    let rerun = Rerun::start(&["--ignored", "--exact", test, "--nocapture"], &[]);
    rerun.finish(SOON * 3);
    assert!(rerun.output().contains("1 passed"), "{}", rerun.output());
}
