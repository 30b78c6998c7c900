//! Tests of all operations on executors other than Tokio, and on Tokio runtimes without drivers.

use crate::{SOON, builder, client, current_thread, ms, multi_thread, unless_stalled};
use futures::FutureExt;
use futures::future::{BoxFuture, Either, select};
use kit::Cluster;
use quorlock::{AcquireError, Loss, Redlock, ReleaseOutcome};
use std::pin::pin;
use std::thread;
use std::time::Instant;
use tokio::runtime::{self, Runtime};

/// Performs all operations of a client. The future must be `Send` and `'static`, because the tests spawn it.
async fn all_operations(redlock: Redlock) {
    redlock.ready().await.expect("nodes are up");
    let lease = redlock.try_acquire("r").await.expect("a free lock");
    lease.extend(ms(40_000)).await.expect("it is held");
    let held = redlock.acquire("r").wait(ms(200)).await.expect_err("it is held");
    assert!(matches!(held, AcquireError::Contended { .. }), "{held:?}");
    assert!(redlock.status("r").await.expect("nodes are up").is_held());
    assert_eq!(redlock.check().await.expect("nodes are up").len(), 3);

    // A waiter acquires a lock that another thread releases.
    thread::spawn(move || {
        thread::sleep(ms(100));
        drop(lease);
    });
    let lease = redlock.acquire("r").wait(SOON).await.expect("released");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));

    // One lease is extended automatically, and another one expires.
    let kept = redlock.acquire("kept").ttl(ms(2_000)).auto_extend_forever();
    let kept = kept.await.expect("a free lock");
    let short = redlock.acquire("short").ttl(ms(1_500)).await.expect("a free lock");
    let valid_until = short.valid_until();
    assert_eq!(short.lost().await, Loss::Expired);
    assert!(Instant::now() < valid_until + SOON);
    let short = redlock.acquire("short").ttl(ms(2_500)).wait(SOON).await.expect("it expires");
    let why = {
        let (lost, kept_lost) = (pin!(short.lost()), pin!(kept.lost()));
        match select(lost, kept_lost).await {
            Either::Left((why, _)) => why,
            Either::Right((why, _)) => panic!("the extended lease is lost: {why}"),
        }
    };
    assert_eq!(why, Loss::Expired);
    assert!(kept.is_valid());
    assert_eq!(kept.release().await, Ok(ReleaseOutcome::Released));
    assert!(redlock.using("r", async |lease| lease.is_valid()).await.expect("a free lock"));
    redlock.close().await.expect("nodes are up");
}

/// Checks that `run` can execute all operations, with leases of two seconds.
fn assert_all_operations_work(run: impl Fn(BoxFuture<'static, ()>)) {
    unless_stalled(|| {
        let cluster = Cluster::start(3);
        let redlock = builder(&cluster).node_timeout(ms(500)).build().expect("good settings");
        run(all_operations(redlock).boxed());
        assert!(cluster.is_empty());
    });
}

fn without_drivers() -> [Runtime; 3] {
    let build = |builder: &mut runtime::Builder| builder.build().expect("a runtime");
    [
        build(&mut runtime::Builder::new_current_thread()),
        build(runtime::Builder::new_multi_thread().worker_threads(1).enable_time()),
        build(runtime::Builder::new_current_thread().enable_io()),
    ]
}

#[test]
fn all_operations_work_on_every_executor() {
    assert_all_operations_work(futures::executor::block_on);
    for runtime in [current_thread(), multi_thread(2)].into_iter().chain(without_drivers()) {
        assert_all_operations_work(|operations| {
            runtime.block_on(async { tokio::spawn(operations).await.expect("no panic") });
        });
    }
    assert_all_operations_work(|operations| smol::block_on(smol::spawn(operations)));
}

/// Checks that a client can be moved from one executor to the next. Leases are dropped outside all executors.
#[test]
fn one_client_works_on_each_executor_in_turn() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let acquire = || async { redlock.acquire("r").wait(SOON).await.expect("free in time") };
    drop(futures::executor::block_on(acquire()));
    for runtime in without_drivers().into_iter().chain([current_thread(), multi_thread(1)]) {
        drop(runtime.block_on(acquire()));
        drop(smol::block_on(acquire()));
        drop(runtime);
    }
    drop(thread::scope(|scope| {
        scope.spawn(|| futures::executor::block_on(acquire())).join().expect("no panic")
    }));
    kit::eventually(SOON, "no key is left", || cluster.is_empty());
}

#[cfg(feature = "blocking")]
#[test]
fn blocking_client_needs_no_executor() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build_blocking().expect("good settings");
    let lease = redlock.try_acquire("r").call().expect("a free lock");
    lease.extend(ms(40_000)).expect("it is held");
    redlock.acquire("r").wait(ms(200)).call().expect_err("it is held");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| redlock.acquire("r").wait(SOON).call().expect("released"));
        thread::sleep(ms(100));
        assert_eq!(lease.release().expect("nodes are up"), ReleaseOutcome::Released);
        drop(waiting.join().expect("no panic"));
    });
    let short = redlock.acquire("r").ttl(ms(1_500)).wait(SOON).call().expect("released");
    assert_eq!(short.lost_within(SOON), Some(Loss::Expired));
    drop(short);
    redlock.close().expect("nodes are up");
}
