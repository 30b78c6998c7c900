//! Work under a lock.

use crate::{SOON, builder, client, eventually, ms};
use kit::{Cluster, Server};
use quorlock::{AcquireError, Loss, ReleaseOutcome, UsingError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::time::sleep;

#[tokio::test]
async fn the_work_is_done_under_the_lock_and_its_output_returned() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let other = redlock.clone();
    let work = async |lease: &quorlock::Lease| {
        assert!(lease.is_valid());
        assert!(other.try_acquire("r").await.is_err(), "it is locked");
        41 + 1
    };
    assert_eq!(redlock.using("r", work).await.expect("all is well"), 42);
    eventually("no key is left", || cluster.is_empty()).await;
    let held = redlock.try_acquire("r").await.expect("a free lock");
    let refused = redlock.acquire("r").wait(ms(100)).using(async |_| ()).await;
    let refused = refused.expect_err("it is held");
    assert!(matches!(refused, UsingError::NotAcquired(AcquireError::Contended { .. })));
    drop(held);
}

#[tokio::test]
async fn it_can_be_spawned() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let spawned = tokio::spawn(async move {
        redlock
            .using("r", async |lease| {
                sleep(ms(10)).await;
                lease.resource().to_vec()
            })
            .await
    });
    assert_eq!(spawned.await.expect("no panic").expect("all is well"), b"r");
}

/// Set when it is dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn at_loss_the_work_is_dropped_where_it_stands() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).node_timeout(ms(100)).build().expect("good settings");
    let stopped = Arc::new(AtomicBool::new(false));
    let flag = Flag(stopped.clone());
    let servers = cluster.servers();
    let working = redlock.acquire("r").ttl(ms(700)).auto_extend(SOON).using(async |_| {
        let _flag = flag;
        servers.iter().for_each(Server::stop);
        sleep(SOON).await;
    });
    let error = working.await.expect_err("no node answers");
    assert!(matches!(error, UsingError::Lost { reason: Loss::Expired }), "{error:?}");
    assert!(stopped.load(Ordering::SeqCst), "dropped before it returned");
    servers.iter().for_each(Server::cont);
}

#[tokio::test]
async fn finished_work_is_never_thrown_away() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).node_timeout(ms(200)).build().expect("good settings");
    let servers = cluster.servers();
    let steal = async |_: &quorlock::Lease| {
        for node in servers {
            node.set("r", "the thief's");
        }
        "done"
    };
    match redlock.using("r", steal).await.expect_err("taken over") {
        UsingError::Overrun { output, found } => {
            assert_eq!((output, found), ("done", Ok(ReleaseOutcome::TakenOver)));
        }
        other => panic!("{other:?}"),
    }
    let hang = async |_: &quorlock::Lease| {
        servers.iter().for_each(Server::stop);
        "done"
    };
    match redlock.using("other", hang).await.expect_err("nobody confirms") {
        UsingError::Unreleased { output, .. } => assert_eq!(output, "done"),
        other => panic!("{other:?}"),
    }
    servers.iter().for_each(Server::cont);
    eventually("what was owed is delivered", || servers.iter().all(|s| s.get("other").is_none()))
        .await;
}

/// Generic code that spawns work under a lock.
fn spawned<F, Fut>(redlock: quorlock::Redlock, work: F) -> tokio::task::JoinHandle<Fut::Output>
where
    F: FnOnce(quorlock::LeaseRef) -> Fut + Send + 'static,
    Fut: Future + Send + 'static,
    Fut::Output: Send + std::fmt::Debug + 'static,
{
    tokio::spawn(async move { redlock.using_fut("r", work).await.expect("all is well") })
}

#[tokio::test]
async fn generic_code_can_spawn_work_with_a_view_of_the_lease() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let view = spawned(redlock.clone(), async |lease: quorlock::LeaseRef| {
        sleep(ms(10)).await;
        assert!(lease.is_valid());
        lease
    });
    let view = view.await.expect("no panic");
    assert!(!view.is_valid() && view.guards() == 0, "released, also if the view lives on");
    eventually("no key is left", || cluster.is_empty()).await;
    let kept = Arc::new(std::sync::Mutex::new(None));
    let keep = kept.clone();
    let work = move |lease: quorlock::LeaseRef| async move {
        *keep.lock().unwrap() = lease.reenter().ok();
    };
    spawned(redlock.clone(), work).await.expect("no panic");
    assert!(redlock.try_acquire("r").await.is_err(), "another guard holds it on");
    drop(kept.lock().unwrap().take());
    eventually("no key is left", || cluster.is_empty()).await;
}
