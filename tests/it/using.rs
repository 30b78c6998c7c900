//! Tests of work that runs under a lock.

use crate::{SOON, builder, client, connected, eventually, ms, through};
use kit::{Cluster, Proxy, Server};
use quorlock::event::{Event, ReleaseResult};
use quorlock::{AcquireError, Loss, Observer, ReleaseOutcome, UsingError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::time::sleep;

#[tokio::test]
async fn using_runs_work_under_the_lock_and_returns_its_output() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let other = redlock.clone();
    let work = async |lease: &quorlock::Lease| {
        assert!(lease.is_valid());
        assert!(other.try_acquire("r").await.is_err(), "the lock is held");
        41 + 1
    };
    assert_eq!(redlock.using("r", work).await.expect("the work succeeds"), 42);
    eventually("no key is left", || cluster.is_empty()).await;
    let held = redlock.try_acquire("r").await.expect("the lock is free");
    let refused = redlock.acquire("r").wait(ms(100)).using(async |_| ()).await;
    let refused = refused.expect_err("it is held");
    assert!(matches!(refused, UsingError::NotAcquired(AcquireError::Contended { .. })));
    drop(held);
}

#[tokio::test]
async fn using_can_be_spawned() {
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
    assert_eq!(spawned.await.expect("no panic").expect("the work succeeds"), b"r");
}

struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn work_is_dropped_at_the_loss() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).node_timeout(ms(100)).build().expect("valid settings");
    let stopped = Arc::new(AtomicBool::new(false));
    let flag = Flag(stopped.clone());
    let servers = cluster.servers();
    let working = redlock.acquire("r").ttl(ms(700)).auto_extend(SOON).using(async |_| {
        let _flag = flag;
        servers.iter().for_each(Server::stop);
        sleep(SOON).await;
    });
    let error = working.await.expect_err("no node replies");
    assert!(matches!(error, UsingError::Lost { reason: Loss::Expired }), "{error:?}");
    assert!(stopped.load(Ordering::SeqCst), "the work is dropped before `using` returns");
    servers.iter().for_each(Server::cont);
}

#[tokio::test]
async fn output_of_finished_work_is_returned_after_a_loss() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).node_timeout(ms(200)).build().expect("valid settings");
    let servers = cluster.servers();
    let steal = async |_: &quorlock::Lease| {
        for node in servers {
            node.set("r", "other");
        }
        "done"
    };
    match redlock.using("r", steal).await.expect_err("taken over") {
        UsingError::Overrun { output, found } => {
            assert_eq!((output, found), ("done", Ok(ReleaseOutcome::TakenOver)));
        }
        other => panic!("{other:?}"),
    }
}

#[derive(Default)]
struct Releases(Mutex<Vec<ReleaseResult>>);

impl Observer for Releases {
    fn on_event(&self, event: &Event) {
        if let Event::ReleaseFinished { result, .. } = event {
            self.0.lock().expect("no panic").push(*result);
        }
    }
}

#[tokio::test]
async fn finished_work_with_an_unconfirmed_release_is_ok() {
    let cluster = Cluster::start(3);
    let releases = Arc::new(Releases::default());
    let builder = builder(&cluster).node_timeout(ms(200)).observer(releases.clone());
    let redlock = builder.build().expect("valid settings");
    let stop = || cluster.iter().for_each(Server::stop);
    let stopped = async |_: &quorlock::Lease| {
        stop();
        Ok::<_, std::io::Error>("done")
    };
    for (number, name) in ["using", "using_fut", "try_using"].into_iter().enumerate() {
        let done = match name {
            "using" => redlock.using(name, stopped).await.map(Result::ok).ok().flatten(),
            "try_using" => redlock.try_using(name, stopped).await.ok(),
            _ => {
                let work = |_| async {
                    stop();
                    "done"
                };
                redlock.using_fut(name, work).await.ok()
            }
        };
        assert_eq!(done, Some("done"), "{name}");
        let recorded = releases.0.lock().expect("no panic").clone();
        assert_eq!(recorded, vec![ReleaseResult::NoQuorum; number + 1], "{name}");
        cluster.iter().for_each(Server::cont);
        let free = || cluster.none_has(name);
        eventually("the release is delivered in the background", free).await;
    }
}

/// The nodes execute the release, its replies are lost with the connections, and another client acquires the lock before
/// the release is repeated.
#[tokio::test]
async fn release_whose_replies_are_lost_is_not_a_loss() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    let redlock = connected(through(&proxies).node_timeout(ms(10_000))).await;
    let other = connected(builder(&cluster)).await;
    // The client replaces a short-lived connection only after a pause.
    sleep(ms(1_100)).await;
    let lease = redlock.try_acquire("r").await.expect("the lock is free");
    eventually("all nodes have granted", || lease.report().granted() == 3).await;
    let next = tokio::spawn(other.acquire("r").wait(SOON).into_future());
    sleep(ms(50)).await;
    for proxy in &proxies {
        proxy.hold_connects(true);
        proxy.cut_next_reply(0);
    }
    let release = tokio::spawn(lease.release());
    let next = next.await.expect("no panic").expect("the lock is released");
    proxies.iter().for_each(Proxy::heal);
    for proxy in &proxies {
        proxy.hold_connects(false);
    }
    assert_eq!(release.await.expect("no panic"), Ok(ReleaseOutcome::Released));
    assert!(next.is_valid(), "the repeated release does not delete the key of another client");
    assert_eq!(next.release().await, Ok(ReleaseOutcome::Released));
    eventually("no key is left", || cluster.is_empty()).await;
}

/// Spawns `work` under a lock. The types are as generic as in a library that does not know the work's future.
fn spawned<F, Fut>(redlock: quorlock::Redlock, work: F) -> tokio::task::JoinHandle<Fut::Output>
where
    F: FnOnce(quorlock::LeaseRef) -> Fut + Send + 'static,
    Fut: Future + Send + 'static,
    Fut::Output: Send + std::fmt::Debug + 'static,
{
    tokio::spawn(async move { redlock.using_fut("r", work).await.expect("the work succeeds") })
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
    assert!(!view.is_valid() && view.guards() == 0, "a view does not keep the lock");
    eventually("no key is left", || cluster.is_empty()).await;
    let kept = Arc::new(std::sync::Mutex::new(None));
    let keep = kept.clone();
    let work = move |lease: quorlock::LeaseRef| async move {
        *keep.lock().unwrap() = lease.reenter().ok();
    };
    spawned(redlock.clone(), work).await.expect("no panic");
    assert!(redlock.try_acquire("r").await.is_err(), "another guard holds the lock");
    drop(kept.lock().unwrap().take());
    eventually("no key is left", || cluster.is_empty()).await;
}
