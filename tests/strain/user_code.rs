//! Tests of user code that blocks: credentials callbacks and observers.

use crate::{SOON, all_up, builder, current_thread, eventually, ms, multi_thread, unless_stalled};
use kit::{Cluster, Server};
use quorlock::event::Event;
use quorlock::{Credentials, Lease, NodeState, Observer, Redlock, ReleaseOutcome};
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::sleep;

pub(crate) const TTL: Duration = ms(3_000);

#[derive(Default)]
pub(crate) struct Barrier {
    is_open: Mutex<bool>,
    opened: Condvar,
    blocked: AtomicUsize,
}

impl Barrier {
    pub(crate) fn block(&self) {
        self.blocked.fetch_add(1, Ordering::SeqCst);
        let is_open = self.is_open.lock().expect("no panic");
        // The limit ends a test that blocks its own thread.
        drop(self.opened.wait_timeout_while(is_open, SOON, |is_open| !*is_open).expect("no panic"));
    }

    pub(crate) fn open(&self) {
        *self.is_open.lock().expect("no panic") = true;
        self.opened.notify_all();
    }

    pub(crate) fn blocked(&self) -> usize {
        self.blocked.load(Ordering::SeqCst)
    }
}

#[derive(Clone, Copy, Debug)]
enum Callback {
    NeverEnds,
    Blocks,
    FutureBlocks,
}

#[test]
fn blocking_credentials_callback_delays_only_its_connection() {
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
                    assert_eq!(
                        lease.release().await,
                        Ok(ReleaseOutcome::Released),
                        "four nodes are connected"
                    );
                }
                let is_up = |node: usize| *redlock.nodes()[node].state() == NodeState::Up;
                eventually("the others are up", || [0, 1, 3, 4].into_iter().all(is_up)).await;
                assert!(!is_up(2), "{callback:?}");
                sleep(ms(3_000)).await;
                let lease = redlock.try_acquire("r").await.expect("four nodes are connected");
                assert_eq!(
                    lease.release().await,
                    Ok(ReleaseOutcome::Released),
                    "four nodes are connected"
                );
            });
            let blocked = barrier.blocked();
            assert!(blocked <= 2, "{callback:?}: {blocked} threads are blocked");
            barrier.open();
        }
    }
}

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

/// Acquires ten auto-extended leases for each of `clients`. Returns the leases when all nodes are up.
pub(crate) async fn acquire_leases(clients: &[Redlock]) -> Vec<Lease> {
    let mut leases = Vec::new();
    for (number, redlock) in clients.iter().cycle().take(10 * clients.len()).enumerate() {
        let acquire = redlock.acquire(number.to_string()).wait(SOON);
        leases.push(acquire.auto_extend_forever().await.expect("a free lock"));
    }
    eventually("all nodes are up", || clients.iter().all(all_up)).await;
    leases
}

/// Checks that no lease is lost while user code blocks for three TTLs. This time begins when `is_blocked` returns true.
/// `unblock` ends the block.
pub(crate) fn assert_leases_kept(
    case: &str,
    runtime: &Runtime,
    leases: &[Lease],
    is_blocked: impl Fn() -> bool,
    unblock: impl Fn(),
) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // This thread may be blocked.
        scope.spawn(|| {
            runtime.block_on(async {
                while !is_over.load(Ordering::SeqCst) {
                    sleep(ms(10)).await;
                }
            });
        });
        kit::eventually(SOON, "user code blocks", is_blocked);
        thread::sleep(3 * TTL);
        let lost: Vec<_> = leases.iter().filter_map(|lease| lease.loss()).collect();
        is_over.store(true, Ordering::SeqCst);
        unblock();
        assert!(lost.is_empty(), "{case}: {} are lost: {:?}", lost.len(), lost[0]);
    });
}

/// Checks that two clients keep their leases for three TTLs after `cause`. The observer of one client blocks at events for which
/// `blocks` returns true. The other client has no observer.
fn assert_blocking_observer_keeps_leases(
    blocks: fn(&Event) -> bool,
    runtime: &Runtime,
    cause: impl Fn(&Cluster),
) {
    unless_stalled(|| keep_leases(blocks, runtime, &cause));
}

fn keep_leases(blocks: fn(&Event) -> bool, runtime: &Runtime, cause: impl Fn(&Cluster)) {
    let cluster = Cluster::start(5);
    let barrier = Arc::new(Barrier::default());
    let is_armed = AtomicBool::new(false);
    let observer = Arc::new(Blocking { barrier: barrier.clone(), is_armed, blocks });
    let builder = builder(&cluster).ttl(TTL).node_timeout(ms(300));
    let blocked = builder.clone().observer(observer.clone()).build().expect("good settings");
    let clients = [blocked, builder.build().expect("good settings")];
    let leases = runtime.block_on(acquire_leases(&clients));
    observer.is_armed.store(true, Ordering::SeqCst);
    cause(&cluster);
    assert_leases_kept("observer", runtime, &leases, || barrier.blocked() > 0, || barrier.open());
}

#[test]
fn observer_that_blocks_at_every_event_loses_no_lease() {
    for runtime in [current_thread(), multi_thread(2)] {
        assert_blocking_observer_keeps_leases(|_| true, &runtime, |_| {});
    }
}

#[test]
fn observer_that_blocks_when_a_node_stalls_loses_no_lease() {
    let is_node = |event: &Event| matches!(event, Event::NodeHealthChanged { .. });
    for runtime in [current_thread(), multi_thread(2)] {
        assert_blocking_observer_keeps_leases(is_node, &runtime, |cluster| cluster[0].stop());
    }
}
