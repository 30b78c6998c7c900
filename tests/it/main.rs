//! quorlock on real redis-server processes. Each test starts its own on free ports, and leaves none
//! behind.

#![allow(
    clippy::incompatible_msrv,
    reason = "the library is for older toolchains; its tests run with a newer one"
)]

mod agreement;
#[cfg(feature = "blocking")]
mod blocking;
mod bounds;
mod bystanders;
mod cancellation;
mod checks;
mod clocks;
mod companions;
mod cool_down;
mod credentials;
mod dead;
mod endings;
mod errors;
mod failovers;
mod fencing;
mod forks;
mod fresh;
mod garbage;
mod guarded;
mod handover;
mod hung;
mod incomplete;
#[cfg(feature = "blocking")]
mod inside;
mod interop;
mod late_keys;
mod late_packets;
mod lifecycle;
mod limits;
mod lingering;
mod many_waiters;
#[cfg(feature = "metrics")]
mod metrics;
mod names;
mod natives;
mod nodes;
mod observer;
mod odd_places;
mod operations;
mod own_clock;
mod ownership;
mod processes;
mod quorum;
mod reconnect;
mod refusals;
mod renewal;
#[cfg(feature = "blocking")]
mod resolver;
mod restarts;
mod rolling;
mod runtimes;
mod seldom;
#[cfg(feature = "serde")]
mod serialized;
mod sets;
mod sets_in_line;
mod sets_told;
mod settings;
mod setups;
mod silence;
mod spoilt;
#[path = "../../examples/fencing/stale.rs"]
mod stale;
mod steps;
mod stopping;
mod suspects;
mod tampered;
mod tampering;
#[cfg(feature = "tls-rustls")]
mod tls;
mod touched;
mod transport;
mod undriven;
mod unserved;
mod using;
mod validity;
mod variables;
mod waiting;
mod wakers;
mod work;

use futures::FutureExt;
use kit::{Cluster, Proxy};
use quorlock::{Acquire, Builder, Lease, NodeState, Redlock};
use std::time::{Duration, Instant};
use tokio::runtime::{self, Runtime};

/// How long to wait for something that takes milliseconds, on the slowest machine.
const SOON: Duration = Duration::from_secs(20);

/// For locks with long ttls: longer than any test.
const MAX_TTL: Duration = Duration::from_hours(1);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A client of `cluster`, with a node timeout that a busy machine does not break.
fn client(cluster: &Cluster) -> Redlock {
    builder(cluster).build().expect("good settings")
}

fn builder(cluster: &Cluster) -> Builder {
    builder_of(cluster.urls())
}

/// Settings of a client that connects through a proxy for each node.
fn through(proxies: &[Proxy]) -> Builder {
    builder_of(proxies.iter().map(Proxy::url))
}

fn builder_of(urls: impl IntoIterator<Item = impl AsRef<str>>) -> Builder {
    let builder = Redlock::builder().nodes(urls).max_ttl(MAX_TTL);
    builder.node_timeout(ms(1_000)).ttl(ms(30_000))
}

/// A client that is connected to all of its nodes.
async fn connected(builder: Builder) -> Redlock {
    let redlock = builder.build().expect("good settings");
    redlock.ready().await.expect("nodes are up");
    eventually("all nodes are up", || all_up(&redlock)).await;
    redlock
}

/// Acquires and releases a lock, once all nodes are up.
async fn warm_up(redlock: &Redlock) {
    let lease = redlock.acquire("warm-up").wait(SOON).await.expect("nodes are up");
    eventually("all nodes are up", || all_up(redlock)).await;
    // If a busy machine exceeds the node timeout, the client delivers the release later.
    let _ = lease.release().await;
}

/// A lease whose key is on all nodes.
async fn granted_by_all(redlock: &Redlock, resource: &str) -> Lease {
    let lease = redlock.acquire(resource).wait(SOON).await.expect("a free lock");
    let nodes = lease.report().nodes().len();
    eventually("all granted", || lease.report().granted() == nodes).await;
    lease
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

/// An acquire that was polled once, and is not decided by then. Where the nodes' tasks run on other threads
/// than the caller, and that one is held up, they can answer within the poll: then it is begun anew, when
/// what it won is given back.
fn begun(acquire: impl Fn() -> Acquire) -> Acquire {
    for _ in 0..100 {
        let mut acquire = acquire();
        if (&mut acquire).now_or_never().is_none() {
            return acquire;
        }
        drop(acquire);
        std::thread::sleep(ms(50));
    }
    panic!("a hundred times the nodes have answered within one poll");
}

/// Waits until `condition` holds, and lets the runtime run meanwhile.
async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < SOON, "it did not happen in {SOON:?}: {what}");
        tokio::time::sleep(ms(2)).await;
    }
}
