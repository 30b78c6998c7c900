//! Counts the nodes that may have lost the keys of a lease.
//!
//! Call [`SuspectedLoss::handle_request`] when the client sends an extension, [`SuspectedLoss::handle_outcome`] when
//! the extension is decided, and [`SuspectedLoss::handle_grant`] for each later grant. When a node pushes that a key
//! changed, [`SuspectedLoss::handle_invalidation`] returns how many nodes may have lost their keys.
//!
//! Before the first extension, the replies to the acquire are the latest information. These replies still arrive while
//! the lease is held, so each call of `handle_invalidation` passes the nodes that have granted so far.

use super::quorum::{NodeId, NodeSet, Quorum};

/// The nodes that may have lost the keys of a lease since the last request to all nodes.
#[derive(Debug)]
pub(crate) struct SuspectedLoss {
    quorum: Quorum,
    /// The nodes that pushed a change of a key.
    invalidated: NodeSet,
    latest: LatestRequest,
}

#[derive(Debug)]
enum LatestRequest {
    ByAcquire,
    UnderWay,
    /// An extension was decided. The `not_granted` nodes have not granted it.
    ByExtension {
        not_granted: NodeSet,
    },
}

impl SuspectedLoss {
    /// Creates the state of a new lease, whose latest request is the acquire.
    pub(crate) fn new(quorum: Quorum) -> Self {
        Self { quorum, invalidated: NodeSet::default(), latest: LatestRequest::ByAcquire }
    }

    pub(crate) fn handle_request(&mut self) {
        (self.invalidated, self.latest) = (NodeSet::default(), LatestRequest::UnderWay);
    }

    /// Records that the extension was decided, after the nodes in `granted` had granted it.
    pub(crate) fn handle_outcome(&mut self, granted: NodeSet) {
        self.latest = LatestRequest::ByExtension { not_granted: self.all().without(granted) };
    }

    /// Records a grant of `node` that arrived after the extension was decided.
    pub(crate) fn handle_grant(&mut self, node: NodeId) {
        if let LatestRequest::ByExtension { not_granted } = &mut self.latest {
            let granted = [node].into_iter().collect();
            *not_granted = not_granted.without(granted);
        }
    }

    /// Records that a key changed on `node`. `acquired` contains the nodes that have granted the acquire so far.
    /// Returns the number of nodes that may have lost their keys.
    pub(crate) fn handle_invalidation(&mut self, node: NodeId, acquired: NodeSet) -> usize {
        self.invalidated.insert(node);
        let not_granted = match self.latest {
            LatestRequest::ByAcquire => self.all().without(acquired),
            LatestRequest::UnderWay => NodeSet::default(),
            LatestRequest::ByExtension { not_granted } => not_granted,
        };
        self.invalidated.union(not_granted).len()
    }

    fn all(&self) -> NodeSet {
        self.quorum.ids().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(nodes: &[usize]) -> NodeSet {
        nodes.iter().map(|node| NodeId::new(*node)).collect()
    }

    #[test]
    fn suspected_nodes_are_invalidated_or_have_not_granted() {
        let node = NodeId::new;
        let empty = NodeSet::default();
        let mut suspected = SuspectedLoss::new(Quorum::majority(3));
        assert_eq!(
            suspected.handle_invalidation(node(0), set(&[0, 1])),
            2,
            "node 0, and node 2 did not grant"
        );
        assert_eq!(
            suspected.handle_invalidation(node(0), set(&[0, 1, 2])),
            1,
            "node 2 has granted late"
        );
        suspected.handle_request();
        assert_eq!(suspected.handle_invalidation(node(1), empty), 1, "the others are being asked");
        suspected.handle_grant(node(1));
        assert_eq!(
            suspected.handle_invalidation(node(0), empty),
            2,
            "a push may have come after the grant"
        );
        suspected.handle_request();
        suspected.handle_outcome(set(&[0]));
        suspected.handle_grant(node(2));
        assert_eq!(
            suspected.handle_invalidation(node(0), empty),
            2,
            "node 0, and node 1 did not grant"
        );
        assert_eq!(suspected.handle_invalidation(node(1), empty), 2);
    }

    proptest! {
        /// Checks the definition: a node is suspected if a key changed on it since the last request, or if it has not
        /// granted that request.
        #[test]
        fn suspected_nodes_match_definition(
            story in prop::collection::vec((0..4_u8, 0..5_usize, prop::collection::vec(0..5_usize, 0..5)), 1..40),
        ) {
            let mut suspected = SuspectedLoss::new(Quorum::majority(5));
            let (mut invalidated, mut not_granted) = (NodeSet::default(), None);
            for (action, node, granted) in story {
                let (id, granted) = (NodeId::new(node), set(&granted));
                match action {
                    0 => {
                        suspected.handle_request();
                        (invalidated, not_granted) = (NodeSet::default(), Some(NodeSet::default()));
                    }
                    1 => {
                        suspected.handle_outcome(granted);
                        not_granted = Some(set(&[0, 1, 2, 3, 4]).without(granted));
                    }
                    2 => {
                        suspected.handle_grant(id);
                        not_granted = not_granted.map(|not_granted| not_granted.without(set(&[node])));
                    }
                    _ => {
                        invalidated.insert(id);
                        let all = set(&[0, 1, 2, 3, 4]);
                        let expected = invalidated.union(not_granted.unwrap_or(all.without(granted)));
                        prop_assert_eq!(suspected.handle_invalidation(id, granted), expected.len());
                    }
                }
            }
        }
    }
}
