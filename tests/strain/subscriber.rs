//! Tests of a client whose `tracing` subscriber blocks.
#![cfg(feature = "tracing")]

use crate::user_code::{Barrier, TTL, acquire_leases, assert_leases_kept};
use crate::{SOON, builder, ms, multi_thread, unless_stalled};
use kit::{Cluster, Rerun};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

struct BlockingSubscriber {
    barrier: Arc<Barrier>,
    is_armed: Arc<AtomicBool>,
}

impl Subscriber for BlockingSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("quorlock")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        if self.is_armed.load(Ordering::SeqCst) {
            self.barrier.block();
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
#[ignore = "run by the next test, because the subscriber is global"]
fn leases_with_blocking_subscriber() {
    let (barrier, is_armed) = (Arc::new(Barrier::default()), Arc::new(AtomicBool::new(false)));
    let subscriber = BlockingSubscriber { barrier: barrier.clone(), is_armed: is_armed.clone() };
    tracing::subscriber::set_global_default(subscriber).expect("there is no other");
    let cluster = Cluster::start(5);
    let builder = builder(&cluster).ttl(TTL).node_timeout(ms(300));
    let clients = [(); 2].map(|()| builder.clone().build().expect("good settings"));
    let runtime = multi_thread(2);
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

#[test]
fn blocking_tracing_subscriber_loses_no_lease() {
    let test = "subscriber::leases_with_blocking_subscriber";
    unless_stalled(|| {
        let rerun = Rerun::start(&["--ignored", "--exact", test, "--nocapture"], &[]);
        rerun.finish(6 * SOON);
        assert!(rerun.output().contains("1 passed"), "{}", rerun.output());
    });
}
