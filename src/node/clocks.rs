//! The nodes' clocks, as a client reads them: with what they grant, and when they are idle.

use crate::protocol::{
    ClockSkew, Drift, NodeId, Promise, PromiseSkew, Quorum, Reading, ReadingResult, Time, Verdict,
};
use crate::sync::lock;
use crate::wire::NodeFailure;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What all nodes of a client have in common.
pub(crate) struct Clocks {
    nodes: Quorum,
    pub(super) drift: Drift,
    skew: Mutex<ClockSkew>,
    /// The nodes that tell what time it is, by bit.
    told: AtomicU32,
    /// The nodes that have run fast, by bit: looked at with each vote.
    fast: AtomicU32,
    /// What is known of the others, and those of them that have a mark, by bit.
    promise_skew: Mutex<PromiseSkew>,
    marked: AtomicU32,
}

impl Clocks {
    /// Keys stand for `term` at most.
    pub(crate) fn new(quorum: Quorum, drift: Drift, term: Duration) -> Self {
        Self {
            nodes: quorum,
            drift,
            skew: Mutex::new(ClockSkew::new(quorum, drift, term)),
            told: AtomicU32::new(0),
            fast: AtomicU32::new(0),
            promise_skew: Mutex::new(PromiseSkew::new(quorum, drift, term)),
            marked: AtomicU32::new(0),
        }
    }

    /// Takes what the clock of `node` shows, if it may be read.
    pub(super) fn handle_reading(
        &self,
        node: NodeId,
        reading: Option<Reading>,
    ) -> Option<ReadingResult> {
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

    /// How far ahead of ours the clock of a node is at least that does not tell the time; see
    /// [`PromiseSkew::ahead`].
    pub(super) fn ahead(&self, promise: Promise, left: Duration, now: Time) -> Option<Duration> {
        lock(&self.promise_skew).ahead(promise, left, now)
    }

    /// Such a node was seen to be ahead, by a key that it had promised.
    pub(super) fn handle_deviation(
        &self,
        node: NodeId,
        promise: Promise,
        ahead: Duration,
        now: Time,
    ) -> Verdict {
        let mut skew = lock(&self.promise_skew);
        let verdict = skew.handle_deviation(node, promise, ahead, now);
        let marked = self.nodes.ids().filter(|node| skew.is_marked(*node));
        self.marked.store(marked.fold(0, |all, node| all | node.bit()), Ordering::Release);
        verdict
    }

    /// Why nothing that `node` grants counts now, whatever it is: its clock runs fast.
    pub(super) fn failure(&self, node: NodeId, now: Time) -> Option<NodeFailure> {
        let is_in = |bits: &AtomicU32| bits.load(Ordering::Acquire) & node.bit() != 0;
        let fast = is_in(&self.fast).then(|| lock(&self.skew).fast(node, now)).flatten();
        let fast = fast.map(|fast| (fast.ahead, fast.until.since(now)));
        let suspect =
            || is_in(&self.marked).then(|| lock(&self.promise_skew).suspect(node, now)).flatten();
        let (ahead, counts_in) = fast.or_else(suspect)?;
        Some(NodeFailure::Suspect { ahead, counts_in })
    }
}
