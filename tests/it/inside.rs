//! The blocking client where async code runs: it refuses where waiting would hold up a runtime, works
//! where it may wait, and panics nowhere.

use crate::{SOON, builder, current_thread, ms, multi_thread};
use kit::Cluster;
use quorlock::blocking::{Error, Redlock};
use quorlock::{AcquireError, Loss};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use tokio::runtime::Runtime;
use tokio::task::{LocalSet, block_in_place, coop::unconstrained, spawn_blocking};

/// All blocking verbs that wait, on a lock that is free. True if they work, false if they refuse.
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

/// A client with a thread of its own, and one on the runtime that it is called on.
fn clients(cluster: &Cluster, runtime: &Runtime) -> [Redlock; 2] {
    let on = |builder: quorlock::Builder| builder.build_blocking().expect("good settings");
    [on(builder(cluster)), on(builder(cluster).runtime(runtime.handle().clone()))]
}

/// What comes in time: a verb that waits for its own thread never comes back.
fn in_time(answers: &Receiver<bool>) -> bool {
    answers.recv_timeout(SOON).expect("it neither panics nor hangs")
}

#[test]
fn in_tasks_it_refuses_also_in_those_without_a_budget() {
    let cluster = Cluster::start(3);
    for runtime in [current_thread(), multi_thread(2)] {
        for redlock in clients(&cluster, &runtime) {
            let (tell, told) = channel();
            let [here, there] = [(); 2].map(|()| (tell.clone(), redlock.clone()));
            let free = redlock.clone();
            runtime.block_on(async move {
                let task = async move { here.0.send(works(&here.1)) };
                tokio::spawn(task).await.expect("no panic").expect("a receiver");
                let task = async move { there.0.send(works(&there.1)) };
                tokio::spawn(unconstrained(task)).await.expect("no panic").expect("a receiver");
                assert!(!works(&free), "in block_on");
                LocalSet::new().run_until(async { assert!(!works(&free), "in a local set") }).await;
            });
            assert!(!in_time(&told), "in a task");
            assert!(!in_time(&told), "in an unconstrained task");
        }
    }
}

#[test]
fn in_an_unconstrained_block_on_it_refuses_or_works_but_neither_panics_nor_hangs() {
    let cluster = Cluster::start(3);
    for runtime in [current_thread(), multi_thread(2)] {
        for redlock in clients(&cluster, &runtime) {
            let (tell, told) = channel();
            let handle = runtime.handle().clone();
            let [in_block_on, in_a_set] = [(); 2].map(|()| (tell.clone(), redlock.clone()));
            thread::scope(|scope| {
                scope.spawn(|| {
                    let task = async move { in_block_on.0.send(works(&in_block_on.1)) };
                    runtime.block_on(unconstrained(task)).expect("a receiver");
                    let task = async move { in_a_set.0.send(works(&in_a_set.1)) };
                    let set = LocalSet::new();
                    runtime.block_on(unconstrained(set.run_until(unconstrained(task))))
                });
                let is_alone = handle.metrics().num_workers() == 1;
                for _ in 0..2 {
                    let works = in_time(&told);
                    assert!(!is_alone || !works, "nobody else drives the runtime");
                }
            });
        }
    }
}

#[test]
fn where_a_thread_may_wait_it_works() {
    let cluster = Cluster::start(3);
    for runtime in [current_thread(), multi_thread(2)] {
        let [own, theirs] = clients(&cluster, &runtime);
        assert!(works(&own), "on a plain thread");
        {
            let _entered = runtime.enter();
            assert!(works(&own), "on a plain thread that knows a runtime");
        }
        futures::executor::block_on(async { assert!(works(&own), "in another executor") });
        for redlock in [own, theirs] {
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
fn after_its_runtime_was_shut_down_it_refuses_and_tells_the_loss_all_the_same() {
    let cluster = Cluster::start(3);
    let runtime = multi_thread(2);
    let redlock = builder(&cluster).ttl(ms(5_000)).runtime(runtime.handle().clone());
    let redlock = redlock.build_blocking().expect("good settings");
    let lease = redlock.try_acquire("r").call().expect("a free lock");
    runtime.shutdown_background();
    assert_eq!(lease.lost_within(ms(1)), None);
    assert_eq!(lease.lost_within(SOON), Some(Loss::Expired));
    let refused = redlock.try_acquire("r").call().expect_err("nobody could deliver anything");
    assert_eq!(refused, AcquireError::NoRuntime.into());
    assert!(redlock.status("r").is_err() && redlock.check().is_ok_and(|nodes| nodes.len() == 3));
    assert!(
        lease.release().is_err_and(|error| error.reason().is_some_and(|it| it.report().is_some()))
    );
    let _ = redlock.close();
}
