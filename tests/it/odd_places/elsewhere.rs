//! `close()` on another runtime than that of the acquires, and on none.

use super::closing::{LONG, close, patient};
use crate::{SOON, client, current_thread, eventually, multi_thread};
use kit::Cluster;
use quorlock::AcquireError;
use std::thread;
use tokio::runtime::Handle;
use tokio::time::timeout;

fn tasks(runtime: &Handle) -> usize {
    runtime.metrics().num_alive_tasks()
}

#[test]
fn on_another_runtime_everything_of_the_first_ends() {
    let cluster = Cluster::start(3);
    let redlock = patient(&cluster);
    let (first, second) = (multi_thread(1), current_thread());
    let lease = first.block_on(async { redlock.acquire("r").wait(SOON).await }).expect("free");
    let waiting = first.spawn(redlock.acquire("r").wait(LONG));
    let unpolled = {
        let _entered = first.enter();
        redlock.acquire("unpolled").wait(LONG)
    };
    second.block_on(async {
        close(&redlock).await.expect("all nodes can be reached");
        assert!(cluster.is_empty(), "a key is left: {:?}", cluster.keys_per_node());
        let refused = timeout(LONG / 2, waiting).await.expect("it is told").expect("no panic");
        assert_eq!(refused.expect_err("closed"), AcquireError::Closed);
        assert_eq!(unpolled.await.expect_err("closed"), AcquireError::Closed);
        let left = || tasks(first.handle()) + tasks(&Handle::current());
        eventually("no task is left on either", || left() == 0).await;
    });
    assert!(!lease.is_valid());
}

#[test]
fn where_the_first_runtime_is_not_driven_it_says_the_truth() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let (first, second) = (current_thread(), current_thread());
    let lease = first.block_on(async { redlock.acquire("r").wait(SOON).await }).expect("free");
    let said = second.block_on(close(&redlock));
    // What was written and not answered by then is named, although it may have been done.
    let named = said.err().map_or_else(Vec::new, |error| error.undelivered().to_vec());
    for (node, keys) in cluster.iter().zip(cluster.keys_per_node()) {
        let is_named = named.iter().any(|(name, _)| *name == node.addr().to_string());
        assert!(keys.is_empty() || is_named, "{} is not named: {named:?}", node.addr());
    }
    drop(lease);
    first.block_on(async {
        eventually("it delivers when it is driven", || cluster.is_empty()).await;
        close(&redlock).await.expect("nothing is owed");
    });
}

#[test]
fn after_its_runtime_was_shut_down_what_is_owed_goes_by_another() {
    let cluster = Cluster::start(3);
    let redlock = patient(&cluster);
    let first = current_thread();
    let (lease, dropped) = first.block_on(async {
        let lease = redlock.acquire("r").wait(SOON).await.expect("free");
        (lease, redlock.acquire("dropped").wait(SOON).await.expect("free"))
    });
    drop(dropped);
    drop(first);
    let second = current_thread();
    second.block_on(async {
        close(&redlock).await.expect("all nodes can be reached");
        assert!(cluster.is_empty(), "a key is left: {:?}", cluster.keys_per_node());
        eventually("no task is left", || tasks(&Handle::current()) == 0).await;
    });
    assert!(!lease.is_valid());
}

#[test]
fn outside_of_runtimes_it_ends_at_once_and_what_is_owed_goes_by_the_one_that_lives() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let first = multi_thread(1);
    let lease = first.block_on(async { redlock.acquire("r").wait(SOON).await }).expect("free");
    let said = thread::scope(|scope| {
        let closing = scope.spawn(|| futures::executor::block_on(redlock.close()));
        kit::eventually(SOON, "it ends", || closing.is_finished());
        closing.join().expect("no panic")
    });
    // It cannot wait there.
    assert!(said.is_err() || cluster.is_empty(), "{said:?}");
    kit::eventually(SOON, "it is delivered", || cluster.is_empty());
    first.block_on(close(&redlock)).expect("nothing is owed");
    kit::eventually(SOON, "no task is left", || tasks(first.handle()) == 0);
    assert!(!lease.is_valid());
}
