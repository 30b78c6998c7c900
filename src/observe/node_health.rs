//! Health of the nodes, as last reported.

use super::event::NodeHealth;
use crate::protocol::{NodeId, Quorum, Time};
use std::time::Duration;

/// Health of each node, and since when.
#[derive(Debug)]
pub(crate) struct HealthRecord {
    quorum: Quorum,
    /// The time is `None` before the first report.
    nodes: Box<[(NodeHealth, Option<Time>)]>,
}

/// Change of a node's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) from: NodeHealth,
    /// How long the node was in the state `from`.
    pub(crate) lasted: Duration,
    /// Number of nodes that count now, of all nodes, and the quorum.
    pub(crate) counted: usize,
    pub(crate) nodes: usize,
    pub(crate) needed: usize,
}

impl HealthRecord {
    pub(crate) fn new(quorum: Quorum) -> Self {
        let nodes = quorum.ids().map(|_| (NodeHealth::Unknown, None)).collect();
        Self { quorum, nodes }
    }

    /// Records the health at `now`. `None` if it is unchanged.
    pub(crate) fn handle(&mut self, node: NodeId, health: NodeHealth, now: Time) -> Option<Change> {
        let (from, since) = self.nodes.get(node.index()).copied()?;
        if from == health {
            return None;
        }
        self.nodes[node.index()] = (health, Some(now));
        Some(Change {
            from,
            lasted: since.map_or(Duration::ZERO, |since| now.since(since)),
            counted: self.nodes.iter().filter(|(health, _)| health.is_counted()).count(),
            nodes: self.quorum.nodes(),
            needed: self.quorum.needed(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_is_returned_once_with_previous_duration() {
        use NodeHealth::{Counted, Down, Quarantined, Unknown};
        let at = |secs| Time::default().after(Duration::from_secs(secs));
        let mut record = HealthRecord::new(Quorum::majority(3));
        let mut change = |node, health, secs| {
            let change = record.handle(NodeId::new(node), health, at(secs))?;
            Some((change.from, change.lasted.as_secs(), change.counted, change.needed))
        };
        assert_eq!(change(0, Counted, 5), Some((Unknown, 0, 1, 2)));
        assert_eq!(change(1, Counted, 6), Some((Unknown, 0, 2, 2)));
        assert_eq!(change(0, Counted, 7), None);
        assert_eq!(change(0, Down, 15), Some((Counted, 10, 1, 2)));
        for secs in 16..3_600 {
            assert_eq!(change(0, Down, secs), None, "one change per hour");
        }
        assert_eq!(change(0, Quarantined, 3_615), Some((Down, 3_600, 1, 2)));
        assert_eq!(change(0, Counted, 3_675), Some((Quarantined, 60, 2, 2)));
    }
}
