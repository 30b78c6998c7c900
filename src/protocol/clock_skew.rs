//! The clocks of all nodes of a client.
//!
//! Where a node's clock has got ahead, it may have stepped, or ours has stood still, as when a virtual
//! machine is frozen. No reading tells the two apart, also where all nodes deviate alike: they may have
//! one source of time. So both are allowed for. What the node grants counts later, as if it had stepped;
//! and our leases are mended, as if we had slept.
//!
//! Its methods are those of [`NodeClock`], for each node.

use super::node_clock::{Fast, NodeClock, Reading, Told};
use super::quorum::{NodeId, Quorum};
use super::validity::{Drift, Time};
use std::time::Duration;

/// What the clocks of a client's nodes show.
#[derive(Debug)]
pub(crate) struct ClockSkew {
    nodes: Vec<NodeClock>,
}

impl ClockSkew {
    /// Clocks that were not read yet. A key stands for `term` at most.
    pub(crate) fn new(quorum: Quorum, drift: Drift, term: Duration) -> Self {
        Self { nodes: quorum.ids().map(|_| NodeClock::new(drift, term)).collect() }
    }

    /// Takes what the clock of `node` showed, and says what the grants are worth that came before that
    /// over the same connection.
    pub(crate) fn handle_reading(&mut self, node: NodeId, reading: Reading) -> Told {
        self.nodes[node.index()].handle_reading(reading)
    }

    /// How much later what `node` grants at `now` counts.
    pub(crate) fn lag(&self, node: NodeId, now: Time) -> Duration {
        self.nodes[node.index()].lag(now)
    }

    /// Why nothing that `node` grants counts at `now`.
    pub(crate) fn fast(&self, node: NodeId, now: Time) -> Option<Fast> {
        self.nodes[node.index()].fast(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::default().after(Duration::from_millis(ms))
    }

    /// A clock that shows this, without any way to it.
    fn reading(shown_ms: u64, ms: u64) -> Reading {
        Reading { sent: at(ms), shown_us: shown_ms * 1_000, received: at(ms) }
    }

    #[test]
    fn each_clock_is_judged_by_its_own_readings() {
        let term = Duration::from_mins(1);
        let mut clocks = ClockSkew::new(Quorum::majority(3), Drift::DEFAULT, term);
        let [good, stepped, fast] = [0, 1, 2].map(NodeId::new);
        for second in 1..=5 {
            let now = second * 1_000;
            clocks.handle_reading(good, reading(now, now));
            clocks.handle_reading(stepped, reading(if second > 3 { now + 700 } else { now }, now));
            clocks.handle_reading(fast, reading(now + now / 20, now));
        }
        assert_eq!(clocks.lag(good, at(5_000)), Duration::ZERO);
        assert!(clocks.lag(stepped, at(5_000)) > Duration::from_millis(600));
        let are_fast = [good, stepped, fast].map(|node| clocks.fast(node, at(5_000)).is_some());
        assert_eq!(are_fast, [false, false, true]);
    }
}
