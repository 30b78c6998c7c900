//! Tests of a client whose `tracing` subscriber blocks.
#![cfg(feature = "tracing")]

use crate::user_code::{Barrier, TTL, acquire_leases, assert_leases_kept};
use crate::{SOON, builder, ms, multi_thread, unless_stalled};
use kit::{Cluster, Rerun};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber};

#[derive(Clone, Copy, PartialEq)]
enum Blocks {
    InEnabled,
    InEvent,
}

struct BlockingSubscriber {
    blocks: Blocks,
    barrier: Arc<Barrier>,
    is_armed: Arc<AtomicBool>,
}

impl BlockingSubscriber {
    fn block(&self, place: Blocks) {
        if self.blocks == place && self.is_armed.load(Ordering::SeqCst) {
            self.barrier.block();
        }
    }
}

impl Subscriber for BlockingSubscriber {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_ours = metadata.target().starts_with("quorlock");
        if is_ours {
            self.block(Blocks::InEnabled);
        }
        is_ours
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.block(Blocks::InEvent);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Checks that two clients keep their leases while the global subscriber blocks. If `own_runtime` is true, the library's
/// own runtime serves the clients.
fn assert_leases_kept_while_blocked(blocks: Blocks, own_runtime: bool) {
    let (barrier, is_armed) = (Arc::new(Barrier::default()), Arc::new(AtomicBool::new(false)));
    let subscriber =
        BlockingSubscriber { blocks, barrier: barrier.clone(), is_armed: is_armed.clone() };
    tracing::subscriber::set_global_default(subscriber).expect("there is no other");
    let cluster = Cluster::start(5);
    let builder = builder(&cluster).ttl(TTL).node_timeout(ms(300));
    let clients = [(); 2].map(|()| builder.clone().build().expect("good settings"));
    let runtime = multi_thread(2);
    if own_runtime {
        for redlock in &clients {
            futures::executor::block_on(redlock.ready()).expect("nodes are up");
        }
    }
    let leases = runtime.block_on(acquire_leases(&clients));
    is_armed.store(true, Ordering::SeqCst);
    cluster[0].stop();
    assert_leases_kept(
        "subscriber",
        &runtime,
        &leases,
        || barrier.blocked() > 0,
        || barrier.open(),
    );
    cluster[0].cont();
}

/// Runs the ignored test `name` in another process, because the subscriber is global.
fn run(name: &str) {
    let test = format!("subscriber::{name}");
    unless_stalled(|| {
        let rerun = Rerun::start(&["--ignored", "--exact", &test, "--nocapture"], &[]);
        rerun.finish(6 * SOON);
        assert!(rerun.output().contains("1 passed"), "{}", rerun.output());
    });
}

#[test]
#[ignore = "run by a test below"]
fn leases_with_subscriber_that_blocks_in_event() {
    assert_leases_kept_while_blocked(Blocks::InEvent, false);
}

#[test]
#[ignore = "run by a test below"]
fn leases_with_subscriber_that_blocks_in_enabled() {
    assert_leases_kept_while_blocked(Blocks::InEnabled, false);
}

#[test]
#[ignore = "run by a test below"]
fn leases_of_own_runtime_with_subscriber_that_blocks_in_enabled() {
    assert_leases_kept_while_blocked(Blocks::InEnabled, true);
}

#[test]
fn blocking_tracing_subscriber_loses_no_lease() {
    run("leases_with_subscriber_that_blocks_in_event");
}

#[test]
fn subscriber_that_blocks_in_enabled_loses_no_lease() {
    run("leases_with_subscriber_that_blocks_in_enabled");
    run("leases_of_own_runtime_with_subscriber_that_blocks_in_enabled");
}
