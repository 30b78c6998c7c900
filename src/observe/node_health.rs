//! Tracks the last reported health of each node.

use super::event::NodeHealth;
use crate::protocol::{NodeId, Quorum, Time};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct HealthRecord {
    /// Each node's health, and the time of its last change. The time is `None` before the first change.
    nodes: Box<[(NodeHealth, Option<Time>)]>,
}

impl HealthRecord {
    pub(crate) fn new(quorum: Quorum) -> Self {
        Self { nodes: quorum.ids().map(|_| (NodeHealth::Unknown, None)).collect() }
    }

    /// Records the health of `node` at `now`. Returns `None` if the health has not changed. Otherwise returns the
    /// previous health, its duration (zero for the first change), and the number of nodes whose grants now count
    /// towards the quorum.
    pub(crate) fn handle(
        &mut self,
        node: NodeId,
        health: NodeHealth,
        now: Time,
    ) -> Option<(NodeHealth, Duration, usize)> {
        let (from, since) = self.nodes.get(node.index()).copied()?;
        if from == health {
            return None;
        }
        self.nodes[node.index()] = (health, Some(now));
        let lasted = since.map_or(Duration::ZERO, |since| now.since(since));
        let counted = self.nodes.iter().filter(|(health, _)| health.is_counted()).count();
        Some((from, lasted, counted))
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
            let (from, lasted, counted) = record.handle(NodeId::new(node), health, at(secs))?;
            Some((from, lasted.as_secs(), counted))
        };
        assert_eq!(change(0, Counted, 5), Some((Unknown, 0, 1)));
        assert_eq!(change(1, Counted, 6), Some((Unknown, 0, 2)));
        assert_eq!(change(0, Counted, 7), None);
        assert_eq!(change(0, Down, 15), Some((Counted, 10, 1)));
        for secs in 16..3_600 {
            assert_eq!(change(0, Down, secs), None, "one change per hour");
        }
        assert_eq!(change(0, Quarantined, 3_615), Some((Down, 3_600, 1)));
        assert_eq!(change(0, Counted, 3_675), Some((Quarantined, 60, 2)));
    }
}
