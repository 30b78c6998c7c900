//! Tests with processes that fork while clients, leases and waiters exist, as pre-forking servers do.
#![cfg(unix)]

use crate::{SOON, current_thread, ms, multi_thread, pending_acquire};
use kit::{Cluster, Rerun, forked};
use quorlock::{Lease, Loss, Redlock, ReleaseOutcome};
use std::time::{Duration, Instant};
use std::{env, mem};
use tokio::time::{sleep, timeout};

/// The environment variable that passes the nodes' URLs to the test process.
const NODES: &str = "QUORLOCK_FORK_NODES";
const FORKING: [&str; 4] = ["--ignored", "--exact", "forks::forking", "--nocapture"];
const DROPPING: [&str; 4] = ["--ignored", "--exact", "forks::dropping", "--nocapture"];
const PARTING: [&str; 4] = ["--ignored", "--exact", "forks::parting", "--nocapture"];

fn client(nodes: &str) -> Redlock {
    let builder = Redlock::builder().nodes(nodes.split(',')).node_timeout(ms(500));
    builder.ttl(ms(3_000)).build().expect("valid settings")
}

async fn renewed(redlock: &Redlock, resource: &str) -> Lease {
    redlock.acquire(resource).wait(SOON).auto_extend(SOON * 6).await.expect("the lock is free")
}

async fn loss(lease: &Lease) -> Loss {
    timeout(SOON, lease.lost()).await.expect("the loss is reported")
}

/// Checks that a process can acquire, renew and release locks with `redlock`, and learns of an expired lease. These
/// operations must work before and after a fork, with a client that was created in any process.
async fn work(redlock: &Redlock, name: &str) {
    let short = redlock.acquire(format!("{name}-short")).ttl(ms(1_000)).await.expect("free");
    assert_eq!(loss(&short).await, Loss::Expired);
    let kept = renewed(redlock, &format!("{name}-kept")).await;
    sleep(ms(6_000)).await;
    assert!(kept.is_valid(), "{name} was not renewed: {:?}", kept.loss());
    assert_eq!(kept.release().await, Ok(ReleaseOutcome::Released));
}

/// Checks that a lock won by an unpolled acquire is passed on to another acquire of the same client.
async fn check_that_unpolled_leases_are_revoked(redlock: &Redlock, name: &str) {
    redlock.ready().await.expect("there is a runtime");
    let forgotten = pending_acquire(|| redlock.acquire(name).wait(SOON * 9));
    let lease = redlock.acquire(name).wait(SOON).await.expect("the unpolled lease is revoked");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    drop(forgotten);
}

#[test]
#[ignore = "runs in a process that the test below starts"]
fn forking() {
    let Ok(nodes) = env::var(NODES) else { return };
    let (used, unused) = (client(&nodes), client(&nodes));
    let runtime = multi_thread(1);
    let (kept, short_loss) = runtime.block_on(async {
        let kept = renewed(&used, "parent-kept").await;
        let short = used.acquire("parent-short").ttl(ms(1_000)).await.expect("the lock is free");
        (kept, loss(&short).await)
    });
    assert_eq!(short_loss, Loss::Expired, "the timer thread runs");
    // The process forks while this acquire is queued.
    let waiting = runtime.spawn(used.acquire("parent-kept").wait(SOON * 9));
    runtime.block_on(async { sleep(ms(300)).await });
    let child = || {
        multi_thread(1).block_on(async {
            // The child does not renew the parent's lease, so the child's copy expires.
            assert_eq!(loss(&kept).await, Loss::Expired);
            check_that_unpolled_leases_are_revoked(&used, "child-room").await;
            work(&used, "child").await;
            work(&unused, "child-new").await;
        });
        let grandchild = || multi_thread(1).block_on(work(&used, "grandchild"));
        assert!(forked(SOON * 3, grandchild), "the grandchild failed");
    };
    assert!(forked(SOON * 6, child), "the child failed");
    runtime.block_on(async {
        assert!(kept.is_valid(), "the parent still renews its lease: {:?}", kept.loss());
        assert_eq!(kept.release().await, Ok(ReleaseOutcome::Released));
        let acquired = waiting.await.expect("no panic").expect("the lock is released");
        assert_eq!(acquired.release().await, Ok(ReleaseOutcome::Released));
        work(&used, "parent").await;
    });
}

#[test]
#[ignore = "runs in a process that the test below starts"]
fn parting() {
    let Ok(nodes) = env::var(NODES) else { return };
    let (redlock, other_client) = (client(&nodes), client(&nodes));
    let (here, limit) = (multi_thread(1), SOON * 3);
    let parent = here.block_on(renewed(&redlock, "r"));
    let view = parent.view();
    let mut copy = Some(parent);
    let close = async |copy: Lease| {
        redlock.close().await.expect("the child has no pending release");
        drop(copy);
    };
    let release_all = async |copy: Lease| {
        assert_eq!(redlock.release_all().await, [], "the child holds no lease");
        mem::forget(copy);
    };
    let work = async |copy: Lease| {
        work(&redlock, "child").await;
        drop(copy);
        // After this drop, the child can still acquire locks.
        redlock.acquire("after").wait(SOON).await.map(drop).expect("the lock is free");
    };
    let mut in_child = |work: &dyn Fn(Lease)| {
        let mut child = || work(copy.take().expect("the parent keeps the lease"));
        assert!(forked(limit, &mut child), "the child failed");
        let refused = here.block_on(async { other_client.try_acquire("r").await });
        assert!(refused.is_err_and(|error| error.is_contended()), "the parent holds the lock");
        assert!(view.is_valid(), "{:?}", view.loss());
    };
    in_child(&|copy| drop(copy));
    in_child(&|copy| multi_thread(1).block_on(release_all(copy)));
    in_child(&|copy| multi_thread(1).block_on(work(copy)));
    in_child(&|copy| multi_thread(1).block_on(close(copy)));
    // Only an explicit release by the child deletes the keys. A child that replaces its parent needs this.
    let child = || {
        let released =
            multi_thread(1).block_on(copy.take().expect("the parent keeps the lease").release());
        assert_eq!(released, Ok(ReleaseOutcome::Released));
    };
    assert!(forked(limit, child), "the child failed");
    here.block_on(async {
        other_client.acquire("r").wait(SOON).await.map(drop).expect("the lock is released");
    });
    here.block_on(async { other_client.close().await.expect("no release is pending") });
    mem::forget(copy);
    // The runtime thread of a blocking client does not exist in the child.
    let builder = Redlock::builder().nodes(nodes.split(',')).node_timeout(ms(500));
    let blocking = builder.build_blocking().expect("valid settings");
    let lease = blocking.acquire("b").wait(SOON).call().expect("the lock is free");
    let mut both = Some((lease, blocking));
    assert!(forked(limit, || drop(both.take())), "the child failed");
    let (lease, _blocking) = both.expect("the parent keeps them");
    assert_eq!(lease.release().expect("nodes are up"), ReleaseOutcome::Released);
}

/// Acquires and releases a lock `count` times, and returns how long that took.
async fn cycle(redlock: Redlock, count: usize) -> Duration {
    let started = Instant::now();
    for _ in 0..count {
        let lease = redlock.acquire("r").wait(SOON).await.expect("the lock is free");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
    started.elapsed()
}

#[test]
#[ignore = "runs in a process that the test below starts"]
fn dropping() {
    const CYCLES: usize = 300;
    let Ok(nodes) = env::var(NODES) else { return };
    let redlock = client(&nodes);
    let here = current_thread();
    let before = here.block_on(cycle(redlock.clone(), CYCLES));
    let unpolled = here.spawn(cycle(redlock.clone(), CYCLES));
    let (mut runtime, mut handles) = (Some(here), Some((redlock, unpolled)));
    assert!(forked(SOON, || drop((runtime.take(), handles.take()))), "the child failed");
    let (here, (redlock, unpolled)) = runtime.zip(handles).expect("the parent keeps them");
    let after = here.block_on(cycle(redlock.clone(), CYCLES));
    // Without notifications of tokio, each reply takes a tenth of a second.
    assert!(after < 10 * before + ms(5_000), "{before:?} before the fork, {after:?} after it");
    here.block_on(unpolled).expect("no panic");
}

#[test]
fn child_that_drops_its_runtime_does_not_slow_down_its_parent() {
    let cluster = Cluster::start(3);
    let process = Rerun::start(&DROPPING, &[(NODES, &cluster.urls().join(","))]);
    process.finish(SOON * 9);
    kit::eventually(SOON, "no key is left", || cluster.is_empty());
}

#[test]
fn forked_child_does_not_release_its_parents_leases() {
    let cluster = Cluster::start(3);
    let process = Rerun::start(&PARTING, &[(NODES, &cluster.urls().join(","))]);
    process.finish(SOON * 15);
}

#[test]
fn forked_child_can_acquire_renew_and_lose_leases() {
    let cluster = Cluster::start(3);
    let process = Rerun::start(&FORKING, &[(NODES, &cluster.urls().join(","))]);
    process.finish(SOON * 9);
    kit::eventually(SOON, "no key is left", || cluster.is_empty());
}
