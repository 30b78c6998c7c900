//! Code of the user that blocks: callbacks for credentials, and observers.

use crate::{SOON, TTL, all_up, builder, client, current_thread, eventually, ms, multi_thread};
use kit::{Cluster, Server};
use quorlock::event::Event;
use quorlock::{Credentials, NodeState, Observer, Redlock};
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Blocks threads until it is opened.
#[derive(Default)]
struct Barrier {
    is_open: Mutex<bool>,
    opened: Condvar,
    blocked: AtomicUsize,
}

impl Barrier {
    fn block(&self) {
        self.blocked.fetch_add(1, Ordering::SeqCst);
        let is_open = self.is_open.lock().expect("no panic");
        drop(self.opened.wait_while(is_open, |is_open| !*is_open).expect("no panic"));
    }

    fn open(&self) {
        *self.is_open.lock().expect("no panic") = true;
        self.opened.notify_all();
    }

    fn blocked(&self) -> usize {
        self.blocked.load(Ordering::SeqCst)
    }
}

/// What the callback does for one of the nodes.
#[derive(Clone, Copy, Debug)]
enum Callback {
    NeverEnds,
    Blocks,
    FutureBlocks,
}

#[test]
fn callback_for_credentials_that_blocks_or_never_ends_delays_only_its_connection() {
    let cluster = Cluster::start_with(5, &Server::builder().password("secret"));
    let odd = cluster[2].addr().to_string();
    for callback in [Callback::NeverEnds, Callback::FutureBlocks, Callback::Blocks] {
        for runtime in [current_thread(), multi_thread(1)] {
            let barrier = Arc::new(Barrier::default());
            let (odd, inner) = (odd.clone(), barrier.clone());
            let ask = move |node: String| {
                let barrier = (node == odd).then(|| inner.clone());
                if let (Callback::Blocks, Some(barrier)) = (callback, &barrier) {
                    barrier.block();
                }
                async move {
                    match (callback, barrier) {
                        (Callback::NeverEnds, Some(_)) => pending().await,
                        (Callback::FutureBlocks, Some(barrier)) => barrier.block(),
                        _ => {}
                    }
                    Ok::<_, String>(Credentials::password("secret"))
                }
            };
            let builder = builder(&cluster).connect_timeout(ms(2_000)).credentials(ask);
            let redlock = builder.build().expect("good settings");
            runtime.block_on(async {
                for _ in 0..50 {
                    let lease = redlock.try_acquire("r").await.expect("four nodes are connected");
                    lease.extend(TTL).await.expect("four nodes are connected");
                    lease.release().await.expect("four nodes are connected");
                }
                let is_up = |node: usize| *redlock.nodes()[node].state() == NodeState::Up;
                eventually("the others are up", || [0, 1, 3, 4].into_iter().all(is_up)).await;
                assert!(!is_up(2), "{callback:?}");
                sleep(ms(3_000)).await;
                let lease = redlock.try_acquire("r").await.expect("four nodes are connected");
                lease.release().await.expect("four nodes are connected");
            });
            let blocked = barrier.blocked();
            assert!(blocked <= 2, "{callback:?}: {blocked} threads are blocked");
            barrier.open();
        }
    }
}

/// Blocks at the first event that `blocks` selects, in the thread that emits it.
struct Blocking {
    barrier: Arc<Barrier>,
    is_armed: AtomicBool,
    blocks: fn(&Event) -> bool,
}

impl Observer for Blocking {
    fn on_event(&self, event: &Event) {
        if self.is_armed.load(Ordering::SeqCst) && (self.blocks)(event) {
            self.barrier.block();
        }
    }
}

/// Leases of a client whose observer blocks, and of another client, are kept for three ttls.
fn keeps_leases(case: &str, blocks: fn(&Event) -> bool, cause: impl Fn(&Cluster)) {
    const TTL: Duration = ms(2_000);
    let cluster = Cluster::start(5);
    let barrier = Arc::new(Barrier::default());
    let is_armed = AtomicBool::new(false);
    let observer = Arc::new(Blocking { barrier: barrier.clone(), is_armed, blocks });
    let builder = builder(&cluster).ttl(TTL).node_timeout(ms(300));
    let observed = builder.clone().observer(observer.clone()).build().expect("good settings");
    let other = builder.build().expect("good settings");
    for runtime in [current_thread(), multi_thread(2)] {
        let (observed, other) = (observed.clone(), other.clone());
        let leases = runtime.block_on(async {
            let mut leases = Vec::new();
            for (number, redlock) in [&observed, &other].into_iter().cycle().take(20).enumerate() {
                let acquire = redlock.acquire(format!("{number}")).wait(SOON);
                leases.push(acquire.auto_extend_forever().await.expect("a free lock"));
            }
            eventually("all nodes are up", || all_up(&observed) && all_up(&other)).await;
            leases
        });
        let begun = Instant::now();
        observer.is_armed.store(true, Ordering::SeqCst);
        thread::scope(|scope| {
            // The observer can block this thread.
            let driver = scope.spawn(|| {
                runtime.block_on(async {
                    while begun.elapsed() < 4 * TTL {
                        sleep(ms(10)).await;
                    }
                });
            });
            cause(&cluster);
            kit::eventually(SOON, "the observer blocks", || barrier.blocked() > 0);
            thread::sleep(3 * TTL);
            let lost: Vec<_> = leases.iter().map(|lease| lease.loss()).collect();
            barrier.open();
            assert!(lost.iter().all(Option::is_none), "{case}: {lost:?}");
            driver.join().expect("no panic");
        });
        observer.is_armed.store(false, Ordering::SeqCst);
        drop(leases);
        break;
    }
}
