//! Runtimes that were built without I/O, or without timers.

use crate::{SOON, builder, client, eventually, ms, multi_thread};
use kit::Cluster;
use quorlock::{AcquireError, ClientError, Lease, Redlock, RuntimeDriver};
use std::future::Future;
use std::thread;
use tokio::runtime::{Builder, Runtime};

/// Runtimes that lack something, and what that is.
fn lacking() -> [(Runtime, RuntimeDriver); 3] {
    let build = |builder: &mut Builder| builder.build().expect("a runtime");
    [
        (build(&mut Builder::new_current_thread()), RuntimeDriver::Time),
        (build(Builder::new_current_thread().enable_io()), RuntimeDriver::Time),
        (build(Builder::new_current_thread().enable_time()), RuntimeDriver::Io),
    ]
}

/// Runs `future` on `runtime`, in a thread of its own: it must end soon, and without a panic.
fn run<T: Send>(runtime: &Runtime, future: impl Future<Output = T> + Send) -> T {
    thread::scope(|scope| scope.spawn(|| runtime.block_on(future)).join().expect("no panic"))
}

#[test]
fn every_verb_says_what_a_runtime_lacks() {
    let cluster = Cluster::start(3);
    for (runtime, missing) in lacking() {
        let redlock = client(&cluster);
        let refused = AcquireError::IncompleteRuntime { missing };
        assert!(refused.to_string().contains("enable_all()"), "{refused}");
        for _ in 0..3 {
            let acquired = run(&runtime, redlock.try_acquire("r").into_future());
            assert_eq!(acquired.expect_err("nothing runs there"), refused);
        }
        let acquired = run(&runtime, redlock.acquire("r").wait(SOON));
        assert_eq!(acquired.expect_err("nothing runs there"), refused);
        let acquired = run(&runtime, redlock.acquire_all(["a", "b"]).fenced());
        assert_eq!(acquired.expect_err("nothing runs there"), refused);
        let adopted = run(&runtime, redlock.adopt("r", "value").into_future());
        assert_eq!(adopted.expect_err("nothing runs there"), refused);
        let refused = ClientError::IncompleteRuntime { missing };
        assert_eq!(run(&runtime, redlock.status("r")), Err(refused.clone()));
        assert_eq!(run(&runtime, redlock.check()), Err(refused.clone()));
        assert_eq!(run(&runtime, redlock.force_release("r")), Err(refused));
        assert!(run(&runtime, redlock.release_all()).is_empty());
        run(&runtime, redlock.close()).expect("nothing is owed");

        let pinned = builder(&cluster).runtime(runtime.handle().clone()).build().expect("good");
        let acquired = multi_thread(1).block_on(pinned.try_acquire("r").into_future());
        assert_eq!(
            acquired.expect_err("it is pinned"),
            AcquireError::IncompleteRuntime { missing }
        );
    }
    assert!(cluster.is_empty());
}

#[test]
fn a_lease_works_on_a_runtime_that_lacks_something_while_its_own_lives() {
    let cluster = Cluster::start(3);
    let (redlock, own) = (client(&cluster), multi_thread(1));
    let acquire = |resource: &'static str| -> Lease {
        own.block_on(async { redlock.try_acquire(resource).await.expect("a free lock") })
    };
    for (runtime, _) in lacking() {
        let lease = acquire("r");
        run(&runtime, lease.extend(ms(60_000))).expect("its own runtime has connections");
        run(&runtime, lease.release()).expect("its own runtime has connections");
        let lease = acquire("dropped");
        run(&runtime, async move { drop(lease) });
        kit::eventually(SOON, "it is released", || cluster.is_empty());
        let lease = acquire("all");
        let released = run(&runtime, redlock.release_all());
        assert_eq!(released.len(), 1);
        assert!(!lease.is_valid());
        kit::eventually(SOON, "it is released", || cluster.is_empty());
    }
}

#[test]
fn a_lease_without_its_own_runtime_ends_in_time_on_one_that_lacks_something() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let orphan = |resource: &'static str| -> Lease {
        let own = multi_thread(1);
        own.block_on(async { redlock.try_acquire(resource).await.expect("a free lock") })
    };
    for (number, (runtime, _)) in lacking().into_iter().enumerate() {
        let resource = ["0", "1", "2"][number];
        let lease = orphan(resource);
        run(&runtime, lease.extend(ms(60_000))).expect_err("nobody can ask the nodes");
        run(&runtime, lease.release()).expect_err("nobody can tell the nodes");
        assert!(run(&runtime, redlock.clone().release_all()).is_empty());
    }
    multi_thread(1).block_on(async {
        // What was left goes out with the next use.
        drop(redlock.try_acquire("last").await.expect("a free lock"));
        eventually("no key is left", || cluster.is_empty()).await;
        // A node can have deleted a key before its reply is read. The next replies are read after it.
        redlock.status("last").await.expect("a client that works");
    });
    close(&redlock);
}

fn close(redlock: &Redlock) {
    let (runtime, _) = lacking().into_iter().next().expect("three");
    run(&runtime, redlock.close()).expect("all is delivered");
}
