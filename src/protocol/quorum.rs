//! Nodes, sets of nodes, and the number of votes that form a quorum.

use std::fmt;

/// The maximum number of nodes of a client. The Redlock page suggests five. A set of 31 nodes fits in one word.
pub(crate) const MAX_NODES: usize = 31;

/// One of the N nodes, identified by its position in the list given to the builder.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeId(u8);

impl NodeId {
    /// Returns the node at `index`. Panics unless `index` is below [`MAX_NODES`].
    pub(crate) fn new(index: usize) -> Self {
        assert!(index < MAX_NODES, "node {index} is beyond {MAX_NODES}");
        Self(u8::try_from(index).expect("MAX_NODES fits a byte"))
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    pub(crate) fn bit(self) -> u32 {
        1 << self.0
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct NodeSet(u32);

impl NodeSet {
    /// Adds `node`. Returns false if the set already contained `node`.
    pub(crate) fn insert(&mut self, node: NodeId) -> bool {
        let added = !self.contains(node);
        self.0 |= node.bit();
        added
    }

    pub(crate) fn contains(self, node: NodeId) -> bool {
        self.0 & node.bit() != 0
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = NodeId> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let first = rest.trailing_zeros();
            rest &= rest.checked_sub(1)?;
            Some(NodeId::new(first as usize))
        })
    }

    pub(crate) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl FromIterator<NodeId> for NodeSet {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> Self {
        nodes.into_iter().fold(Self::default(), |mut set, node| {
            set.insert(node);
            set
        })
    }
}

impl fmt::Debug for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// The number of nodes and the size of a majority, floor(N/2) + 1. Any two majorities have at least one node in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quorum {
    nodes: u8,
    needed: u8,
}

impl Quorum {
    /// Returns the majority of `nodes` nodes. Panics unless `nodes` is from 1 to [`MAX_NODES`].
    pub(crate) fn majority(nodes: usize) -> Self {
        assert!((1..=MAX_NODES).contains(&nodes), "{nodes} nodes: need 1 to {MAX_NODES}");
        let nodes = u8::try_from(nodes).expect("MAX_NODES fits a byte");
        Self { nodes, needed: nodes / 2 + 1 }
    }

    pub(crate) fn nodes(self) -> usize {
        self.nodes.into()
    }

    /// Returns the minimum number of nodes in a quorum.
    pub(crate) fn needed(self) -> usize {
        self.needed.into()
    }

    pub(crate) fn reached(self, count: usize) -> bool {
        count >= self.needed()
    }

    /// Returns true if a quorum is impossible because `count` nodes have failed or refused.
    pub(crate) fn blocked(self, count: usize) -> bool {
        self.nodes().saturating_sub(count) < self.needed()
    }

    pub(crate) fn ids(self) -> impl Iterator<Item = NodeId> {
        (0..self.nodes()).map(NodeId::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn majorities_exceed_half_and_intersect() {
        for (nodes, needed) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4), (31, 16)] {
            let quorum = Quorum::majority(nodes);
            assert_eq!(quorum.needed(), needed, "N = {nodes}");
            assert!(2 * quorum.needed() > nodes);
            assert!(quorum.reached(needed) && !quorum.reached(needed - 1));
        }
    }

    #[test]
    fn blocked_means_the_rest_is_no_quorum() {
        for nodes in 1..=MAX_NODES {
            let quorum = Quorum::majority(nodes);
            for against in 0..=nodes {
                assert_eq!(quorum.blocked(against), !quorum.reached(nodes - against));
            }
        }
    }

    #[test]
    fn set_counts_each_node_once() {
        let mut set = NodeSet::default();
        assert!(set.insert(NodeId::new(30)));
        assert!(!set.insert(NodeId::new(30)));
        assert!(set.insert(NodeId::new(0)));
        assert_eq!(set.len(), 2);
        assert!(set.contains(NodeId::new(0)) && !set.contains(NodeId::new(1)));
        assert_eq!(format!("{set:?}"), "{n0, n30}");
    }
}
