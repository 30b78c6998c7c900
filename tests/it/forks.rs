//! Processes that are forked in the middle of their work, as servers with workers are.
#![cfg(unix)]

use crate::{SOON, begun, ms, multi_thread};
use kit::{Cluster, Rerun, forked};
use quorlock::{Lease, Loss, Redlock, ReleaseOutcome};
use std::{env, mem};
use tokio::time::{sleep, timeout};

/// How the process is told its nodes.
const NODES: &str = "QUORLOCK_FORK_NODES";
const FORKING: [&str; 4] = ["--ignored", "--exact", "forks::forking", "--nocapture"];
const PARTING: [&str; 4] = ["--ignored", "--exact", "forks::parting", "--nocapture"];

fn client(nodes: &str) -> Redlock {
    let builder = Redlock::builder().nodes(nodes.split(',')).node_timeout(ms(500));
    builder.ttl(ms(3_000)).build().expect("good settings")
}

async fn kept_up(redlock: &Redlock, resource: &str) -> Lease {
    redlock.acquire(resource).wait(SOON).auto_extend(SOON * 6).await.expect("a free lock")
}

async fn loss(lease: &Lease) -> Loss {
    timeout(SOON, lease.lost()).await.expect("the loss is told")
}

/// What everybody must be able to do, with a client that was made anywhere.
async fn work(redlock: &Redlock, name: &str) {
    let short = redlock.acquire(format!("{name}-short")).ttl(ms(1_000)).await.expect("free");
    assert_eq!(loss(&short).await, Loss::Expired);
    let kept = kept_up(redlock, &format!("{name}-kept")).await;
    sleep(ms(6_000)).await;
    assert!(kept.is_valid(), "{name} was not renewed: {:?}", kept.loss());
    kept.release().await.expect("nodes are up");
}

/// Who does not move makes room for others of this process.
async fn make_room(redlock: &Redlock, name: &str) {
    redlock.ready().await.expect("there is a runtime");
    let forgotten = begun(|| redlock.acquire(name).wait(SOON * 9));
    let lease = redlock.acquire(name).wait(SOON).await.expect("it is given up");
    lease.release().await.expect("nodes are up");
    drop(forgotten);
}

#[test]
#[ignore = "runs as a process of its own of the test below"]
fn forking() {
    let Ok(nodes) = env::var(NODES) else { return };
    let (used, unused) = (client(&nodes), client(&nodes));
    let runtime = multi_thread(1);
    let (kept, told) = runtime.block_on(async {
        let kept = kept_up(&used, "parent-kept").await;
        let short = used.acquire("parent-short").ttl(ms(1_000)).await.expect("a free lock");
        (kept, loss(&short).await)
    });
    assert_eq!(told, Loss::Expired, "the timer runs");
    // The fork takes place while this stands in line.
    let waiting = runtime.spawn(used.acquire("parent-kept").wait(SOON * 9));
    runtime.block_on(async { sleep(ms(300)).await });
    let child = || {
        multi_thread(1).block_on(async {
            // Nobody renews the parent's lease in the child: as far as it knows, it ends.
            assert_eq!(loss(&kept).await, Loss::Expired);
            make_room(&used, "child-room").await;
            work(&used, "child").await;
            work(&unused, "child-new").await;
        });
        let grandchild = || multi_thread(1).block_on(work(&used, "grandchild"));
        assert!(forked(SOON * 3, grandchild), "the grandchild has failed");
    };
    assert!(forked(SOON * 6, child), "the child has failed");
    runtime.block_on(async {
        assert!(kept.is_valid(), "the parent goes on: {:?}", kept.loss());
        kept.release().await.expect("nodes are up");
        let had = waiting.await.expect("no panic").expect("it is released");
        had.release().await.expect("nodes are up");
        work(&used, "parent").await;
    });
}

#[test]
#[ignore = "runs as a process of its own of the test below"]
fn parting() {
    let Ok(nodes) = env::var(NODES) else { return };
    let (ours, theirs) = (client(&nodes), client(&nodes));
    let (here, limit) = (multi_thread(1), SOON * 3);
    let parent = here.block_on(kept_up(&ours, "r"));
    let view = parent.view();
    let mut copy = Some(parent);
    let close = async |copy: Lease| {
        ours.close().await.expect("nothing of its own is owed");
        drop(copy);
    };
    let release_all = async |copy: Lease| {
        assert_eq!(ours.release_all().await, [], "it holds nothing");
        mem::forget(copy);
    };
    let work = async |copy: Lease| {
        work(&ours, "child").await;
        drop(copy);
        // What it is owed is delivered.
        ours.acquire("after").wait(SOON).await.map(drop).expect("a free lock");
    };
    let mut in_child = |work: &dyn Fn(Lease)| {
        let mut child = || work(copy.take().expect("the parent keeps it"));
        assert!(forked(limit, &mut child), "the child has failed");
        let refused = here.block_on(async { theirs.try_acquire("r").await });
        assert!(refused.is_err_and(|error| error.is_contended()), "the parent holds it");
        assert!(view.is_valid(), "{:?}", view.loss());
    };
    in_child(&|copy| drop(copy));
    in_child(&|copy| multi_thread(1).block_on(release_all(copy)));
    in_child(&|copy| multi_thread(1).block_on(work(copy)));
    in_child(&|copy| multi_thread(1).block_on(close(copy)));
    // Who asks for it has it: such as a child that goes on in its parent's place.
    let child = || {
        let released = multi_thread(1).block_on(copy.take().expect("it is there").release());
        assert_eq!(released, Ok(ReleaseOutcome::Released));
    };
    assert!(forked(limit, child), "the child has failed");
    here.block_on(async { theirs.acquire("r").wait(SOON).await.map(drop).expect("it is free") });
    here.block_on(async { theirs.close().await.expect("all is delivered") });
    mem::forget(copy);
    // The thread of a client without async is not there in the child.
    let builder = Redlock::builder().nodes(nodes.split(',')).node_timeout(ms(500));
    let blocking = builder.build_blocking().expect("good settings");
    let lease = blocking.acquire("b").wait(SOON).call().expect("a free lock");
    let mut both = Some((lease, blocking));
    assert!(forked(limit, || drop(both.take())), "the child has failed");
    let (lease, _blocking) = both.expect("the parent keeps them");
    assert_eq!(lease.release().expect("nodes are up"), ReleaseOutcome::Released);
}

#[test]
fn what_a_forked_process_lets_go_of_stays_with_its_parent() {
    let cluster = Cluster::start(3);
    let process = Rerun::start(&PARTING, &[(NODES, &cluster.urls().join(","))]);
    process.finish(SOON * 15);
}

#[test]
fn a_forked_process_acquires_renews_and_is_told_of_losses() {
    let cluster = Cluster::start(3);
    let process = Rerun::start(&FORKING, &[(NODES, &cluster.urls().join(","))]);
    process.finish(SOON * 9);
    kit::eventually(SOON, "no key is left", || cluster.is_empty());
}
