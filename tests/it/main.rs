//! Integration tests of quorlock with real `redis-server` processes. Each test starts and stops its own servers on free
//! ports.

#![allow(
    clippy::incompatible_msrv,
    reason = "the library is for older toolchains; its tests run with a newer one"
)]

mod agreement;
mod any_of;
mod blind_spots;
#[cfg(feature = "blocking")]
mod blocking;
#[cfg(feature = "blocking")]
mod blocking_in_async;
mod bounds;
mod cancellation;
mod checks;
mod clocks;
mod closing;
mod companions;
mod cool_down;
mod credentials;
mod dead;
mod dropped_clients;
mod election;
mod errors;
mod failovers;
mod fencing;
mod foreign_changes;
mod forks;
mod fresh;
mod garbage;
mod guarded;
mod handover;
mod hung;
mod incomplete;
mod interop;
mod invalid_counters;
mod late_keys;
mod late_packets;
mod leaders;
mod lease_end;
mod lifecycle;
mod limits;
mod many_waiters;
#[cfg(feature = "metrics")]
mod metrics;
mod names;
mod native_commands;
mod nodes;
mod observer;
mod once;
mod operations;
mod own_clock;
mod ownership;
mod processes;
mod quorum;
mod rare_conditions;
mod rarely_polled;
mod reconnect;
mod refusals;
mod refused_writes;
mod renewal;
#[cfg(feature = "blocking")]
mod reservations;
mod resolver;
mod restarts;
mod rolling;
mod runtimes;
mod rw_lock;
mod semaphore;
#[cfg(feature = "serde")]
mod serialized;
mod set_notifications;
mod set_queues;
mod sets;
mod settings;
mod setups;
mod silence;
#[path = "../../examples/fencing/stale.rs"]
mod stale;
mod steps;
mod stopped_runtimes;
mod stopping;
mod stuck_waiters;
mod suspects;
mod tampered;
mod tampering;
#[cfg(feature = "rustls-0-23")]
mod tls;
mod transport;
mod unreported_replies;
mod using;
mod validity;
mod variables;
mod waiting;
mod wakers;
mod work;

use futures::FutureExt;
use kit::{Cluster, Proxy};
use quorlock::{Acquire, Builder, Lease, NodeState, Redlock};
use quorlock_test::pending_work;
use std::time::{Duration, Instant};
use tokio::runtime::{self, Runtime};

/// The time limit for events that usually take milliseconds. It is long enough for the slowest test machine.
const SOON: Duration = Duration::from_secs(20);

/// The clients' `max_ttl`. It is longer than any test.
const MAX_TTL: Duration = Duration::from_hours(1);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Creates a client of `cluster` with a node timeout that is long enough for a busy machine.
fn client(cluster: &Cluster) -> Redlock {
    builder(cluster).build().expect("valid settings")
}

fn builder(cluster: &Cluster) -> Builder {
    builder_of(cluster.urls())
}

fn through(proxies: &[Proxy]) -> Builder {
    builder_of(proxies.iter().map(Proxy::url))
}

fn builder_of(urls: impl IntoIterator<Item = impl AsRef<str>>) -> Builder {
    let builder = Redlock::builder().nodes(urls).max_ttl(MAX_TTL);
    builder.node_timeout(ms(1_000)).ttl(ms(30_000))
}

async fn connected(builder: Builder) -> Redlock {
    let redlock = builder.build().expect("valid settings");
    redlock.ready().await.expect("nodes are up");
    eventually("all nodes are up", || all_up(&redlock)).await;
    redlock
}

async fn warm_up(redlock: &Redlock) {
    let lease = redlock.acquire("warm-up").wait(SOON).await.expect("nodes are up");
    eventually("all nodes are up", || all_up(redlock)).await;
    // If a busy machine exceeds the node timeout, the client delivers the release later.
    let _ = lease.release().await;
}

/// Returns a lease that every node has granted. If a node of a busy machine replies too late for its grant to count,
/// this function releases the lock on all nodes and acquires it again. Afterwards, no other release is pending.
async fn granted_by_all(redlock: &Redlock, resource: &str) -> Lease {
    let started = Instant::now();
    loop {
        let lease = redlock.acquire(resource).wait(SOON).await.expect("the lock is free");
        let acquired = Instant::now();
        while acquired.elapsed() < ms(1000) {
            if lease.report().granted() == lease.report().nodes().len() {
                return lease;
            }
            tokio::time::sleep(ms(2)).await;
        }
        assert!(
            started.elapsed() < SOON,
            "not every node has granted within {SOON:?}: {:?}",
            lease.report()
        );
        let _ = lease.release().await;
        eventually("all nodes have confirmed the release", || pending_work(redlock).releases == 0)
            .await;
    }
}

fn state(redlock: &Redlock, node: usize) -> NodeState {
    redlock.nodes()[node].state().clone()
}

fn is_up(redlock: &Redlock, node: usize) -> bool {
    state(redlock, node) == NodeState::Up
}

fn is_down(redlock: &Redlock, node: usize) -> bool {
    matches!(state(redlock, node), NodeState::Down(_))
}

fn all_up(redlock: &Redlock) -> bool {
    redlock.nodes().iter().all(|node| *node.state() == NodeState::Up)
}

fn all_down(redlock: &Redlock) -> bool {
    redlock.nodes().iter().all(|node| matches!(node.state(), NodeState::Down(_)))
}

fn current_thread() -> Runtime {
    runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn multi_thread(threads: usize) -> Runtime {
    let mut builder = runtime::Builder::new_multi_thread();
    builder.worker_threads(threads).enable_all().build().expect("a runtime")
}

/// Returns an acquire that was polled once and is pending. If the first poll already returned a lease, this function
/// drops the lease and tries again. An early lease is possible when this thread is delayed while the client's task runs
/// on another thread.
fn pending_acquire(acquire: impl Fn() -> Acquire) -> Acquire {
    for _ in 0..100 {
        let mut acquire = acquire();
        if (&mut acquire).now_or_never().is_none() {
            return acquire;
        }
        drop(acquire);
        std::thread::sleep(ms(50));
    }
    panic!("the nodes have replied within one poll, a hundred times");
}

async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < SOON, "timed out after {SOON:?}: {what}");
        tokio::time::sleep(ms(2)).await;
    }
}
