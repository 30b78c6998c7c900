//! The nodes' clocks, as a client reads them: with what they grant, and when they are idle.

use super::promise_skew::PromiseSkew;
use crate::protocol::{ClockSkew, Drift, NodeId, Quorum, Reading, Time, Told};
use crate::sync::lock;
use crate::wire::NodeFailure;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What all nodes of a client have in common.
pub(crate) struct Clocks {
    pub(super) drift: Drift,
    skew: Mutex<ClockSkew>,
    /// The nodes that tell what time it is, by bit.
    told: AtomicU32,
    /// The nodes that have run fast, by bit: looked at with each vote.
    fast: AtomicU32,
    /// What is known of the others.
    pub(super) promise_skew: PromiseSkew,
}

impl Clocks {
    /// Keys stand for `term` at most.
    pub(crate) fn new(quorum: Quorum, drift: Drift, term: Duration) -> Self {
        Self {
            drift,
            skew: Mutex::new(ClockSkew::new(quorum, drift, term)),
            told: AtomicU32::new(0),
            fast: AtomicU32::new(0),
            promise_skew: PromiseSkew::new(quorum, drift, term),
        }
    }

    /// Takes what the clock of `node` shows, if it may be read.
    pub(super) fn handle_reading(&self, node: NodeId, reading: Option<Reading>) -> Option<Told> {
        let Some(reading) = reading else {
            self.told.fetch_and(!node.bit(), Ordering::Relaxed);
            return None;
        };
        self.told.fetch_or(node.bit(), Ordering::Relaxed);
        let mut skew = lock(&self.skew);
        let told = skew.handle_reading(node, reading);
        if skew.fast(node, reading.received).is_some() {
            self.fast.fetch_or(node.bit(), Ordering::Release);
        }
        Some(told)
    }

    /// True if `node` tells what time it is.
    pub(super) fn is_told(&self, node: NodeId) -> bool {
        self.told.load(Ordering::Relaxed) & node.bit() != 0
    }

    /// How much later what `node` grants counts.
    pub(super) fn lag(&self, node: NodeId, now: Time) -> Duration {
        lock(&self.skew).lag(node, now)
    }

    /// Why nothing that `node` grants counts now, whatever it is: its clock runs fast.
    pub(super) fn failure(&self, node: NodeId, now: Time) -> Option<NodeFailure> {
        if self.fast.load(Ordering::Acquire) & node.bit() == 0 {
            return self.promise_skew.failure(node, now);
        }
        let fast = lock(&self.skew).fast(node, now);
        let fast = fast.map(|fast| (fast.ahead, fast.until.since(now)));
        let failure = fast.map(|(ahead, counts_in)| NodeFailure::Suspect { ahead, counts_in });
        failure.or_else(|| self.promise_skew.failure(node, now))
    }
}
