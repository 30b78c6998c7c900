//! The clocks of all nodes of a client.
//!
//! If a node's clock has got ahead, either it has stepped, or the client's clock has stood still, for example while a
//! virtual machine was frozen. Readings cannot tell the two apart, even if all nodes deviate alike: they may have
//! one time source. So both are allowed for. The node's grants count later, as after a step of its clock. The client's
//! leases are extended again, as after a pause of the process.
//!
//! Each method calls the [`NodeClock`] method of the same name, for one node.

use super::node_clock::{Fast, NodeClock, Reading, ReadingResult};
use super::quorum::{NodeId, Quorum};
use super::validity::{Drift, Time};
use std::time::Duration;

/// The clocks of a client's nodes.
#[derive(Debug)]
pub(crate) struct ClockSkew {
    nodes: Vec<NodeClock>,
}

impl ClockSkew {
    /// Clocks without readings. A key exists for at most `key_lifetime`.
    pub(crate) fn new(quorum: Quorum, drift: Drift, key_lifetime: Duration) -> Self {
        Self { nodes: quorum.ids().map(|_| NodeClock::new(drift, key_lifetime)).collect() }
    }

    /// Evaluates a reading of the clock of `node` for the grants that came before it over the same connection.
    pub(crate) fn handle_reading(&mut self, node: NodeId, reading: Reading) -> ReadingResult {
        self.nodes[node.index()].handle_reading(reading)
    }

    /// How much later a grant of `node` at `now` counts.
    pub(crate) fn lag(&self, node: NodeId, now: Time) -> Duration {
        self.nodes[node.index()].lag(now)
    }

    /// Set while the grants of `node` do not count because its clock runs fast.
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

    /// A reading without a network delay.
    fn reading(shown_ms: u64, ms: u64) -> Reading {
        Reading { sent: at(ms), shown_us: shown_ms * 1_000, received: at(ms) }
    }

    #[test]
    fn each_node_clock_is_independent() {
        let key_lifetime = Duration::from_mins(1);
        let mut clocks = ClockSkew::new(Quorum::majority(3), Drift::DEFAULT, key_lifetime);
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
