//! Tests of the blocking client in programs with async code. The client returns an error instead of blocking a runtime,
//! works on threads that may block, and never panics.

use crate::{SOON, builder, current_thread, ms, multi_thread};
use kit::Cluster;
use quorlock::blocking::{Error, Redlock};
use quorlock::{AcquireError, Loss, NoRuntime};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use tokio::runtime::Runtime;
use tokio::task::{LocalSet, block_in_place, coop::unconstrained, spawn_blocking};

/// Calls every blocking operation on a free lock. Returns true if all calls succeed, and false if the client refuses
/// all of them. Panics if only some are refused.
fn works(redlock: &Redlock) -> bool {
    let acquired = redlock.try_acquire("r").call();
    let works = match &acquired {
        Ok(_) => true,
        Err(Error::InsideRuntime) => false,
        Err(other) => panic!("{other}"),
    };
    if let Ok(lease) = acquired {
        assert_eq!(lease.lost_within(ms(1)), None);
        assert!(lease.extend(ms(40_000)).is_ok() && lease.release().is_ok());
    }
    assert_eq!(redlock.status("r").is_ok(), works);
    assert_eq!(redlock.check().is_ok(), works);
    assert_eq!(redlock.force_release("r").is_ok(), works);
    assert_eq!(redlock.release_all().is_ok(), works);
    works
}

fn clients(cluster: &Cluster, runtime: &Runtime) -> [Redlock; 2] {
    let on = |builder: quorlock::Builder| builder.build_blocking().expect("valid settings");
    [on(builder(cluster)), on(builder(cluster).runtime(runtime.handle().clone()))]
}

/// Receives a result within [`SOON`]. The time limit ends the test if an operation blocks the runtime that it needs.
fn receive(results: &Receiver<bool>) -> bool {
    results.recv_timeout(SOON).expect("the operation returns")
}

#[test]
fn blocking_client_refuses_calls_in_tasks() {
    let cluster = Cluster::start(3);
    for runtime in [current_thread(), multi_thread(2)] {
        for redlock in clients(&cluster, &runtime) {
            let (sender, results) = channel();
            let [here, there] = [(); 2].map(|()| (sender.clone(), redlock.clone()));
            let free = redlock.clone();
            runtime.block_on(async move {
                let task = async move { here.0.send(works(&here.1)) };
                tokio::spawn(task).await.expect("no panic").expect("a receiver");
                let task = async move { there.0.send(works(&there.1)) };
                tokio::spawn(unconstrained(task)).await.expect("no panic").expect("a receiver");
                assert!(!works(&free), "in block_on");
                LocalSet::new().run_until(async { assert!(!works(&free), "in a local set") }).await;
            });
            assert!(!receive(&results), "in a task");
            assert!(!receive(&results), "in an unconstrained task");
        }
    }
}

#[test]
fn blocking_client_returns_in_unconstrained_block_on() {
    let cluster = Cluster::start(3);
    for runtime in [current_thread(), multi_thread(2)] {
        for redlock in clients(&cluster, &runtime) {
            let (sender, results) = channel();
            let handle = runtime.handle().clone();
            let [in_block_on, in_a_set] = [(); 2].map(|()| (sender.clone(), redlock.clone()));
            thread::scope(|scope| {
                scope.spawn(|| {
                    let task = async move { in_block_on.0.send(works(&in_block_on.1)) };
                    runtime.block_on(unconstrained(task)).expect("a receiver");
                    let task = async move { in_a_set.0.send(works(&in_a_set.1)) };
                    let set = LocalSet::new();
                    runtime.block_on(unconstrained(set.run_until(unconstrained(task))))
                });
                let is_single_threaded = handle.metrics().num_workers() == 1;
                for _ in 0..2 {
                    let works = receive(&results);
                    assert!(!is_single_threaded || !works, "no other thread drives the runtime");
                }
            });
        }
    }
}

#[test]
fn blocking_client_works_on_threads_that_may_block() {
    let cluster = Cluster::start(3);
    for runtime in [current_thread(), multi_thread(2)] {
        let [own, other_client] = clients(&cluster, &runtime);
        assert!(works(&own), "on a plain thread");
        {
            let _entered = runtime.enter();
            assert!(works(&own), "on a plain thread that has entered a runtime");
        }
        futures::executor::block_on(async { assert!(works(&own), "in another executor") });
        for redlock in [own, other_client] {
            let blocking = spawn_blocking_on(&runtime, redlock.clone());
            assert!(blocking, "on a thread for blocking code");
            if runtime.metrics().num_workers() > 1 {
                let [limited, unlimited] = [redlock.clone(), redlock];
                let task = async move { block_in_place(|| works(&limited)) };
                assert!(runtime.block_on(runtime.spawn(task)).expect("no panic"), "in place");
                let task = unconstrained(async move { block_in_place(|| works(&unlimited)) });
                assert!(runtime.block_on(runtime.spawn(task)).expect("no panic"), "in place");
            }
        }
    }
}

fn spawn_blocking_on(runtime: &Runtime, redlock: Redlock) -> bool {
    runtime.block_on(async { spawn_blocking(move || works(&redlock)).await.expect("no panic") })
}

#[test]
fn blocking_client_reports_loss_after_runtime_shutdown() {
    let cluster = Cluster::start(3);
    let runtime = multi_thread(2);
    let redlock = builder(&cluster).ttl(ms(5_000)).runtime(runtime.handle().clone());
    let redlock = redlock.build_blocking().expect("valid settings");
    let lease = redlock.try_acquire("r").call().expect("the lock is free");
    runtime.shutdown_background();
    assert_eq!(lease.lost_within(ms(1)), None);
    assert_eq!(lease.lost_within(SOON), Some(Loss::Expired));
    let refused = redlock.try_acquire("r").call().expect_err("the runtime has ended");
    let reason = NoRuntime::ShutDown;
    assert_eq!(refused, AcquireError::NoRuntime { reason }.into());
    assert!(redlock.status("r").is_err() && redlock.check().is_ok_and(|nodes| nodes.len() == 3));
    assert!(
        lease.release().is_err_and(|error| error.reason().is_some_and(|it| it.report().is_some()))
    );
    let _ = redlock.close();
}
