//! One client on many runtimes, on one that is gone, and on none.

use crate::{SOON, builder, client, current_thread, eventually, ms, multi_thread};
use kit::Cluster;
use quorlock::{AcquireError, Lease, ReleaseOutcome};
use std::sync::Arc;
use std::thread;

#[test]
fn a_lease_outlives_its_runtime() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let acquire = || -> Lease {
        let runtime = current_thread();
        runtime.block_on(async { redlock.try_acquire("r").await.expect("a free lock") })
    };
    let lease = acquire();
    assert!(lease.is_valid());
    let runtime = current_thread();
    runtime.block_on(async {
        lease.extend(ms(60_000)).await.expect("over new connections");
        assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Released);
    });

    let lease = acquire();
    // The library's own runtime delivers it.
    drop(lease);
    kit::eventually(SOON, "no key is left", || cluster.is_empty());
}

#[test]
fn a_release_left_by_a_dead_runtime_is_delivered_by_one_that_lives() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let alive = multi_thread(2);
    let kept = alive.block_on(async { redlock.try_acquire("kept").await.expect("a free lock") });
    let lease = current_thread().block_on(async { redlock.try_acquire("r").await.expect("free") });
    drop(lease);
    alive.block_on(eventually("delivered without a further use", || cluster.none_has("r")));
    assert!(kept.is_valid());
}

#[test]
fn client_with_a_pinned_runtime_works_outside_of_it_until_its_end() {
    let cluster = Cluster::start(3);
    let runtime = multi_thread(2);
    let pinned = builder(&cluster).runtime(runtime.handle().clone()).build().expect("good");
    futures::executor::block_on(async {
        let lease = pinned.try_acquire("r").await.expect("a free lock");
        let held = pinned.acquire("r").wait(ms(300)).await.expect_err("it is held");
        assert!(matches!(held, AcquireError::Contended { .. }), "{held:?}");
        lease.extend(ms(40_000)).await.expect("still held");
        assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Released);
    });
    drop(runtime);
    let refused = futures::executor::block_on(pinned.try_acquire("r").into_future());
    assert_eq!(refused.expect_err("its runtime is gone"), AcquireError::NoRuntime);
}

#[test]
fn a_runtime_that_is_shut_down_does_not_hang_a_waiter_of_another() {
    let cluster = Cluster::start(3);
    cluster.servers().iter().for_each(kit::Server::stop);
    let pinned_on = multi_thread(2);
    let redlock = builder(&cluster).node_timeout(ms(20_000)).runtime(pinned_on.handle().clone());
    let redlock = Arc::new(redlock.build().expect("good settings"));
    let waiter = thread::spawn({
        let redlock = redlock.clone();
        move || current_thread().block_on(async move { redlock.try_acquire("r").await })
    });
    thread::sleep(ms(200));
    let begun = std::time::Instant::now();
    drop(pinned_on);
    let refused = waiter.join().expect("no panic").expect_err("nobody can answer");
    assert!(begun.elapsed() < ms(15_000), "it did not wait for the node timeout");
    let AcquireError::NoQuorum { report } = &refused else { panic!("{refused:?}") };
    assert!(report.to_string().contains("the runtime has shut down"), "{report}");
    cluster.servers().iter().for_each(kit::Server::cont);
}
