//! Wakers that panic: they are other people's code, and run on threads that serve everybody.

use crate::{SOON, builder, eventually, ms};
use kit::Cluster;
use quorlock::{Lease, Loss, Redlock};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use tokio::time::{sleep, timeout};

/// Counts how often it was woken, and panics each time.
#[derive(Default)]
struct Broken(AtomicUsize);

impl Wake for Broken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("a waker that panics, as this test wants it");
    }
}

fn client(cluster: &Cluster) -> Redlock {
    builder(cluster).node_timeout(ms(200)).ttl(ms(3_000)).build().expect("good settings")
}

/// Lets one wait for the loss whose waker panics.
fn wait_badly(lease: &Lease, broken: &Arc<Broken>) -> Pin<Box<dyn Future<Output = Loss>>> {
    let view = lease.view();
    let mut lost = Box::pin(async move { view.lost().await });
    let waker = Waker::from(broken.clone());
    assert!(lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(), "it is held");
    lost
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waker_that_panics_keeps_nobody_from_being_told_and_renewal_goes_on() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let kept = redlock.acquire("kept").auto_extend(SOON * 6).await.expect("a free lock");
    let short = redlock.acquire("short").ttl(ms(1_000)).await.expect("a free lock");
    let broken = Arc::new(Broken::default());
    // Before and after it, others wait for the same loss.
    let first = short.view();
    let first = tokio::spawn(async move { first.lost().await });
    sleep(ms(50)).await;
    let _waits = [wait_badly(&short, &broken), wait_badly(&short, &broken)];
    let last = short.view();
    let last = tokio::spawn(async move { last.lost().await });
    for told in [first, last] {
        assert_eq!(timeout(SOON, told).await.expect("told").expect("no panic"), Loss::Expired);
    }
    eventually("both were woken", || broken.0.load(Ordering::SeqCst) == 2).await;
    // The thread that tells it lives: what was acquired before is renewed, and what comes is told.
    let next = redlock.acquire("next").ttl(ms(600)).await.expect("a free lock");
    assert_eq!(timeout(SOON, next.lost()).await.expect("told"), Loss::Expired);
    sleep(ms(4_000)).await;
    assert!(kept.is_valid(), "{:?}", kept.loss());
    kept.release().await.expect("nodes are up");
}
