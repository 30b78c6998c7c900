//! Tests of quorlock under strain: blocked runtimes, runtimes that are shut down, leaked futures, blocking user code,
//! other executors, and load. These tests are separate from `it`, because their load would disturb the tests there.

#![allow(
    clippy::incompatible_msrv,
    reason = "the library is for older toolchains; its tests run with a newer one"
)]

mod blocked;
mod ended;
mod executors;
mod idle;
mod leaked;
mod load;
mod secure;
mod subscriber;
mod threads;
mod user_code;

use kit::Cluster;
use quorlock::{Builder, NodeState, Redlock};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use tokio::runtime::{self, Runtime};

const SOON: Duration = Duration::from_secs(20);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Returns client settings with a node timeout that is long enough for a busy machine.
fn builder(cluster: &Cluster) -> Builder {
    builder_of(cluster.urls())
}

fn builder_of(urls: impl IntoIterator<Item = impl AsRef<str>>) -> Builder {
    let builder = Redlock::builder().nodes(urls).max_ttl(Duration::from_hours(1));
    builder.node_timeout(ms(1_000)).ttl(ms(30_000))
}

fn client(cluster: &Cluster) -> Redlock {
    builder(cluster).build().expect("good settings")
}

fn all_up(redlock: &Redlock) -> bool {
    redlock.nodes().iter().all(|node| *node.state() == NodeState::Up)
}

fn current_thread() -> Runtime {
    runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn multi_thread(threads: usize) -> Runtime {
    let mut builder = runtime::Builder::new_multi_thread();
    builder.worker_threads(threads).enable_all().build().expect("a runtime")
}

async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < SOON, "not within {SOON:?}: {what}");
        tokio::time::sleep(ms(2)).await;
    }
}

/// Runs a check that holds leases of two or three seconds, and repeats a failed one if the machine has delayed threads.
#[track_caller]
fn unless_stalled(mut check: impl FnMut()) {
    kit::unless_stalled(ms(150), || {
        let caught = catch_unwind(AssertUnwindSafe(&mut check));
        caught.map_err(|_| "the check panicked, see its message above".to_owned())
    });
}
