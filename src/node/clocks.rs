//! The clocks of all nodes of a client, from the readings that come with grants, with set-ups and with heartbeats.

use crate::protocol::{Drift, NodeClock, NodeId, Quorum, Reading, ReadingResult, Time};
use crate::sync::lock;
use crate::wire::NodeFailure;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Shared by all nodes of a client.
pub(crate) struct Clocks {
    pub(super) drift: Drift,
    nodes: Mutex<Box<[NodeClock]>>,
    /// Nodes that were found to run fast, by bit. Read for each vote, without the mutex.
    fast: AtomicU32,
}

impl Clocks {
    /// `suspect_period`: how long a node that ran fast is excluded, which is the longest TTL of a key.
    pub(crate) fn new(quorum: Quorum, drift: Drift, suspect_period: Duration) -> Self {
        let nodes = quorum.ids().map(|_| NodeClock::new(drift, suspect_period));
        Self { drift, nodes: Mutex::new(nodes.collect()), fast: AtomicU32::new(0) }
    }

    pub(super) fn handle_reading(&self, node: NodeId, reading: Reading) -> ReadingResult {
        let clock = &mut lock(&self.nodes)[node.index()];
        let result = clock.handle_reading(reading);
        if clock.fast(reading.received).is_some() {
            self.fast.fetch_or(node.bit(), Ordering::Release);
        }
        result
    }

    /// Time by which grants of `node` count later.
    pub(super) fn lag(&self, node: NodeId, now: Time) -> Duration {
        lock(&self.nodes)[node.index()].lag(now)
    }

    /// Returns a failure if no vote of `node` counts, because its clock runs fast.
    pub(super) fn failure(&self, node: NodeId, now: Time) -> Option<NodeFailure> {
        if self.fast.load(Ordering::Acquire) & node.bit() == 0 {
            return None;
        }
        let fast = lock(&self.nodes)[node.index()].fast(now)?;
        Some(NodeFailure::Suspect { ahead: fast.ahead, counts_in: fast.until.since(now) })
    }
}
