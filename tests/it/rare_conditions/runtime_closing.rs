//! Tests of `close()` outside any runtime, and on a runtime that the client's acquires do not use.

use super::closing::{LONG, client_with_long_connect_timeout, close};
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
fn close_on_another_runtime_ends_everything() {
    let cluster = Cluster::start(3);
    let redlock = client_with_long_connect_timeout(&cluster);
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
        let refused =
            timeout(LONG / 2, waiting).await.expect("the acquire ends").expect("no panic");
        assert_eq!(refused.expect_err("closed"), AcquireError::Closed);
        assert_eq!(unpolled.await.expect_err("closed"), AcquireError::Closed);
        let left = || tasks(first.handle()) + tasks(&Handle::current());
        eventually("no task is left on either runtime", || left() == 0).await;
    });
    assert!(!lease.is_valid());
}

#[test]
fn close_reports_pending_releases_if_runtime_is_idle() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let (first, second) = (current_thread(), current_thread());
    let lease = first.block_on(async { redlock.acquire("r").wait(SOON).await }).expect("free");
    let closed = second.block_on(close(&redlock));
    // The error names releases that were written but not confirmed, although they may have run.
    let named = closed.err().map_or_else(Vec::new, |error| error.undelivered().to_vec());
    for (node, keys) in cluster.iter().zip(cluster.keys_per_node()) {
        let is_named = named.iter().any(|(name, _)| *name == node.addr().to_string());
        assert!(keys.is_empty() || is_named, "{} is not named: {named:?}", node.addr());
    }
    drop(lease);
    first.block_on(async {
        eventually("the releases are delivered once the runtime runs", || cluster.is_empty()).await;
        close(&redlock).await.expect("no release is pending");
    });
}

#[test]
fn close_after_runtime_shutdown_uses_another_runtime() {
    let cluster = Cluster::start(3);
    let redlock = client_with_long_connect_timeout(&cluster);
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
fn close_outside_of_runtimes_ends_at_once() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let first = multi_thread(1);
    let lease = first.block_on(async { redlock.acquire("r").wait(SOON).await }).expect("free");
    let closed = thread::scope(|scope| {
        let closing = scope.spawn(|| futures::executor::block_on(redlock.close()));
        kit::eventually(SOON, "close() ends", || closing.is_finished());
        closing.join().expect("no panic")
    });
    // Outside a runtime, `close()` cannot wait for replies.
    assert!(closed.is_err() || cluster.is_empty(), "{closed:?}");
    kit::eventually(SOON, "the releases are delivered", || cluster.is_empty());
    first.block_on(close(&redlock)).expect("no release is pending");
    kit::eventually(SOON, "no task is left", || tasks(first.handle()) == 0);
    assert!(!lease.is_valid());
}
