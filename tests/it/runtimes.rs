//! One client on many runtimes, on one that is gone, and on none.

use crate::{SOON, builder, client, current_thread, eventually, ms, multi_thread};
use kit::Cluster;
use quorlock::{AcquireError, Lease, Redlock, ReleaseOutcome};
use std::sync::{Arc, LazyLock};
use std::thread;

/// What a test suite of an application does: a static client, and a runtime for each test. The
/// leases of one test are still being released when its runtime is dropped.
#[test]
fn a_static_client_shared_by_200_per_test_runtimes_never_fails() {
    static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| Cluster::start(5));
    static CLIENT: LazyLock<Redlock> = LazyLock::new(|| client(&CLUSTER));

    let one_test = |number: usize| {
        let runtime = if number.is_multiple_of(2) { current_thread() } else { multi_thread(2) };
        runtime.block_on(async {
            let own = CLIENT.try_acquire(format!("own/{number}")).await.expect("nobody else's");
            let shared = CLIENT.acquire("shared").wait(SOON).await.expect("free in time");
            match number % 3 {
                0 => drop(shared),
                1 => drop(shared.release().await.expect("nodes are up")),
                _ => drop(tokio::spawn(shared.release())),
            }
            drop(own);
        });
    };
    for batch in 0..25 {
        thread::scope(|scope| {
            let tests = (0..8).map(|test| scope.spawn(move || one_test(8 * batch + test)));
            tests.collect::<Vec<_>>().into_iter().for_each(|test| test.join().expect("no failure"));
        });
    }
    multi_thread(2).block_on(async {
        // What the last runtimes left undelivered goes out with the next use.
        drop(CLIENT.try_acquire("last").await.expect("nobody else's"));
        eventually("no key is left", || CLUSTER.is_empty()).await;
    });
    // Statics are not dropped: end the servers here.
    CLUSTER.servers().iter().for_each(kit::Server::kill);
}

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
    drop(lease); // No runtime at all: kept for the next one.
    assert!(!cluster.is_empty(), "there was nobody to deliver it");
    runtime.block_on(async {
        let other = redlock.try_acquire("other").await.expect("a free lock");
        other.release().await.expect("nodes are up");
        eventually("what was left is delivered", || cluster.is_empty()).await;
    });
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
fn without_a_runtime_an_acquire_is_refused_by_name_and_with_a_pinned_one_it_works() {
    let cluster = Cluster::start(3);
    let refused = futures::executor::block_on(client(&cluster).try_acquire("r").into_future());
    assert_eq!(refused.expect_err("no runtime"), AcquireError::NoRuntime);

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
