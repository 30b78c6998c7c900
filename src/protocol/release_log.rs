//! Records when each node deleted a conflicting key, so that refused attempts are repeated soon.
//!
//! A node sends a push when a key is deleted. For a lock of several keys, each node reports one conflicting key, and
//! nodes may report different keys. Only pushes for the reported key matter. The report can arrive after the push, so
//! both are stored and compared on request. Deletions are stored once per key, for all attempts, with their [`Epoch`].
//! An attempt asks for the deletions since it began.
//!
//! [`ReleaseLog::handle_freed`] records that a node reported the deletion of the key. [`ReleaseLog::handle_release`]
//! records that a lease of this process has ended, and that its deletes are on their way to all nodes.
//! [`ReleaseLog::free_from`] returns when a node is free of the key.

use super::quorum::{NodeId, NodeSet};
use super::validity::Time;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FreeNodes {
    pub(crate) nodes: NodeSet,
    /// The time from which all of `nodes` are free.
    pub(crate) from: Time,
}

impl FreeNodes {
    pub(crate) fn insert(&mut self, node: NodeId, at: Time) {
        self.nodes.insert(node);
        self.from = self.from.max(at);
    }
}

/// A logical time: a counter that orders events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Epoch(u64);

impl Epoch {
    pub(crate) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The latest deletion of one key on each node.
#[derive(Debug, Default)]
pub(crate) struct ReleaseLog {
    freed: BTreeMap<NodeId, Epoch>,
    /// The latest release of a lease of this process, and the time from which the key is free.
    released: Option<(Epoch, Time)>,
}

impl ReleaseLog {
    pub(crate) fn handle_freed(&mut self, node: NodeId, epoch: Epoch) {
        self.freed.insert(node, epoch);
    }

    /// Records the release of a lease held by this process. The key is free on all nodes from `at` onwards.
    pub(crate) fn handle_release(&mut self, at: Time, epoch: Epoch) {
        self.released = Some((epoch, at));
    }

    /// Returns the time from which the key is free on `node`. Returns `None` if the key was not deleted after the
    /// attempt began at `began`.
    pub(crate) fn free_from(&self, node: NodeId, began: Epoch) -> Option<Time> {
        if self.freed.get(&node).is_some_and(|epoch| *epoch > began) {
            return Some(Time::default());
        }
        self.released.filter(|(epoch, _)| *epoch > began).map(|(_, at)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(ms: u64) -> Time {
        Time::default().after(Duration::from_millis(ms))
    }

    fn epochs() -> [Epoch; 4] {
        let first = Epoch::default();
        [first, first.next(), first.next().next(), first.next().next().next()]
    }

    #[test]
    fn deletion_counts_on_its_node_for_earlier_attempts() {
        let [first, second] = [0, 1].map(NodeId::new);
        let [start, one, two, three] = epochs();
        let mut key = ReleaseLog::default();
        assert_eq!(key.free_from(first, start), None);
        key.handle_freed(first, two);
        assert_eq!(key.free_from(first, one), Some(Time::default()));
        assert_eq!(key.free_from(second, one), None, "another node reported it");
        assert_eq!(key.free_from(first, two), None, "the next attempt began after it");
        key.handle_freed(first, three);
        assert_eq!(key.free_from(first, two), Some(Time::default()));
    }

    #[test]
    fn release_frees_all_nodes() {
        let [start, one, two, three] = epochs();
        let mut key = ReleaseLog::default();
        key.handle_release(at(70), two);
        for node in [0, 1].map(NodeId::new) {
            assert_eq!(key.free_from(node, one), Some(at(70)));
            assert_eq!(key.free_from(node, two), None, "the next attempt began after it");
        }
        key.handle_release(at(30), three);
        assert_eq!(key.free_from(NodeId::new(0), start), Some(at(30)), "acquired in between");
    }

    #[test]
    fn deletion_on_a_node_overrides_a_delayed_release() {
        let [start, one, two, _] = epochs();
        let [first, second] = [0, 1].map(NodeId::new);
        let mut key = ReleaseLog::default();
        key.handle_release(at(9), one);
        key.handle_freed(first, two);
        assert_eq!(key.free_from(first, start), Some(Time::default()));
        assert_eq!(key.free_from(second, start), Some(at(9)));
    }

    #[test]
    fn free_nodes_count_from_the_latest_time() {
        let [first, second, third] = [0, 1, 2].map(NodeId::new);
        let mut free = FreeNodes::default();
        for (node, ms) in [(first, 30), (second, 70), (third, 0)] {
            free.insert(node, at(ms));
        }
        let nodes = [first, second, third].into_iter().collect();
        assert_eq!(free, FreeNodes { nodes, from: at(70) });
    }
}
