//! Tests of wakers that panic. A waker is user code, and runs on threads that all leases share.

use crate::{SOON, builder, eventually, ms};
use futures::FutureExt;
use kit::Cluster;
use quorlock::{Acquire, AcquireError, Lease, Loss, Redlock, ReleaseOutcome};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Wake, Waker};
use std::thread;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

#[derive(Default)]
struct Broken(AtomicUsize);

impl Wake for Broken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("on purpose: a waker that panics");
    }
}

fn client(cluster: &Cluster) -> Redlock {
    builder(cluster).node_timeout(ms(200)).ttl(ms(3_000)).build().expect("valid settings")
}

/// Polls `lost()` once with a waker that panics. Returns the future, which is still pending.
fn wait_with_broken_waker(
    lease: &Lease,
    broken: &Arc<Broken>,
) -> Pin<Box<dyn Future<Output = Loss>>> {
    let view = lease.view();
    let mut lost = Box::pin(async move { view.lost().await });
    let waker = Waker::from(broken.clone());
    assert!(lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(), "it is held");
    lost
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panicking_waker_does_not_affect_others_or_renewal() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let kept = redlock.acquire("kept").auto_extend(SOON * 6).await.expect("the lock is free");
    let short = redlock.acquire("short").ttl(ms(1_000)).await.expect("the lock is free");
    let broken = Arc::new(Broken::default());
    // Two other tasks wait for the same loss, one registered before the broken wakers and one after them.
    let first = short.view();
    let first = tokio::spawn(async move { first.lost().await });
    sleep(ms(50)).await;
    let _waits = [wait_with_broken_waker(&short, &broken), wait_with_broken_waker(&short, &broken)];
    let last = short.view();
    let last = tokio::spawn(async move { last.lost().await });
    for waiting in [first, last] {
        assert_eq!(
            timeout(SOON, waiting).await.expect("the loss is reported").expect("no panic"),
            Loss::Expired
        );
    }
    eventually("both were woken", || broken.0.load(Ordering::SeqCst) == 2).await;
    // The timer thread survives: it renews earlier leases and reports later losses.
    let next = redlock.acquire("next").ttl(ms(600)).await.expect("the lock is free");
    assert_eq!(timeout(SOON, next.lost()).await.expect("the loss is reported"), Loss::Expired);
    sleep(ms(4_000)).await;
    assert!(kept.is_valid(), "{:?}", kept.loss());
    assert_eq!(kept.release().await, Ok(ReleaseOutcome::Released));
}

/// A waker that closes a client when it is dropped.
struct ClosesOnDrop(Redlock);

impl Wake for ClosesOnDrop {
    fn wake(self: Arc<Self>) {}
}

impl Drop for ClosesOnDrop {
    fn drop(&mut self) {
        let _ = self.0.close().now_or_never();
    }
}

fn poll_with_closing_waker(acquire: &mut Acquire, redlock: &Redlock) {
    let waker = Waker::from(Arc::new(ClosesOnDrop(redlock.clone())));
    let polled = acquire.poll_unpin(&mut Context::from_waker(&waker));
    assert!(polled.is_pending(), "the lock is held");
}

/// Runs `work` on another thread, and checks that the thread ends. Returns its result.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(SOON).expect("the thread is not blocked")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_can_be_closed_by_the_drop_of_a_waker() {
    let cluster = Cluster::start(3);
    let holder = client(&cluster);
    let _lease = holder.acquire("r").auto_extend_forever().await.expect("the lock is free");
    for is_replaced in [true, false] {
        let redlock = client(&cluster);
        redlock.ready().await.expect("nodes are up");
        let runtime = Handle::current();
        let ended = in_time(move || {
            let _entered = runtime.enter();
            let mut acquire = redlock.acquire("r").wait(SOON * 9);
            poll_with_closing_waker(&mut acquire, &redlock);
            if is_replaced {
                // The next poll replaces the waker.
                return Some(runtime.block_on(acquire).map(drop));
            }
            // Cancels the acquire, and drops the waker with it.
            drop(acquire);
            None
        });
        assert_eq!(ended, is_replaced.then_some(Err(AcquireError::Closed)));
    }
}
