//! Standing of the nodes, as last reported.

use super::node_event::NodeStanding;
use crate::protocol::{NodeId, Quorum, Time};
use std::time::Duration;

/// Standing of each node, and since when.
#[derive(Debug)]
pub(super) struct NodeStandings {
    quorum: Quorum,
    /// The time is `None` before the first report.
    nodes: Box<[(NodeStanding, Option<Time>)]>,
}

/// Change of a node's standing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) from: NodeStanding,
    /// Duration of the previous standing.
    pub(crate) after: Duration,
    /// Number of nodes that count now, of all nodes, and the quorum.
    pub(crate) counted: usize,
    pub(crate) nodes: usize,
    pub(crate) needed: usize,
}

impl NodeStandings {
    pub(super) fn new(quorum: Quorum) -> Self {
        let nodes = quorum.ids().map(|_| (NodeStanding::Unknown, None)).collect();
        Self { quorum, nodes }
    }

    /// Records the standing at `now`. `None` if it is unchanged.
    pub(super) fn handle(
        &mut self,
        node: NodeId,
        standing: NodeStanding,
        now: Time,
    ) -> Option<Change> {
        let (from, since) = self.nodes.get(node.index()).copied()?;
        if from == standing {
            return None;
        }
        self.nodes[node.index()] = (standing, Some(now));
        Some(Change {
            from,
            after: since.map_or(Duration::ZERO, |since| now.since(since)),
            counted: self.nodes.iter().filter(|(standing, _)| standing.is_counted()).count(),
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
        use NodeStanding::{Counted, Down, Quarantined, Unknown};
        let at = |secs| Time::default().after(Duration::from_secs(secs));
        let mut standings = NodeStandings::new(Quorum::majority(3));
        let mut told = |node, standing, secs| {
            let change = standings.handle(NodeId::new(node), standing, at(secs))?;
            Some((change.from, change.after.as_secs(), change.counted, change.needed))
        };
        assert_eq!(told(0, Counted, 5), Some((Unknown, 0, 1, 2)));
        assert_eq!(told(1, Counted, 6), Some((Unknown, 0, 2, 2)));
        assert_eq!(told(0, Counted, 7), None);
        assert_eq!(told(0, Down, 15), Some((Counted, 10, 1, 2)));
        for secs in 16..3_600 {
            assert_eq!(told(0, Down, secs), None, "one change per hour");
        }
        assert_eq!(told(0, Quarantined, 3_615), Some((Down, 3_600, 1, 2)));
        assert_eq!(told(0, Counted, 3_675), Some((Quarantined, 60, 2, 2)));
    }
}
