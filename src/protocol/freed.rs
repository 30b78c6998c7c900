//! Which nodes are free for an attempt that was refused, as far as is known.
//!
//! One key has gone where a node says so. Of several keys a node names one that is in its way, and nodes may
//! name different ones: what tells of another key says nothing. What a node names may be heard after what
//! tells that it has gone, so both are kept and compared when they are asked for.
//!
//! Events in:
//!
//! - [`FreedKeys::handle_begin`]: an attempt begins, which sees what has gone before;
//! - [`FreedKeys::handle_freed`]: a node says that a key is gone there;
//! - [`FreedKeys::handle_release`]: a lease of this process has ended, and its deletes are on their way to all nodes.
//!
//! Question: [`FreedKeys::free`] is where what was in the way has gone.

use super::quorum::{NodeId, NodeSet};
use super::validity::Time;
use std::collections::{BTreeMap, BTreeSet};

/// Nodes that are free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Free {
    pub(crate) nodes: NodeSet,
    /// From then on.
    pub(crate) from: Time,
}

/// What has gone of several keys since the last attempt for them began. A key is known by its place among
/// them.
#[derive(Debug, Default)]
pub(crate) struct FreedKeys {
    freed: BTreeSet<(NodeId, usize)>,
    released: BTreeMap<usize, Time>,
}

impl FreedKeys {
    pub(crate) fn handle_begin(&mut self) {
        *self = Self::default();
    }

    /// `node` says that the key at `place` is gone there.
    pub(crate) fn handle_freed(&mut self, node: NodeId, place: usize) {
        self.freed.insert((node, place));
    }

    /// The key at `place` can be had from `at` on, on all nodes.
    pub(crate) fn handle_release(&mut self, place: usize, at: Time) {
        self.released.insert(place, at);
    }

    /// The nodes whose obstacle has gone. `obstacles` are the places of the keys that nodes have named.
    pub(crate) fn free(&self, obstacles: impl IntoIterator<Item = (NodeId, usize)>) -> Free {
        let mut free = Free::default();
        for (node, place) in obstacles {
            if self.freed.contains(&(node, place)) {
                free.nodes.insert(node);
            } else if let Some(at) = self.released.get(&place) {
                free.nodes.insert(node);
                free.from = free.from.max(*at);
            }
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(ms: u64) -> Time {
        Time::default().after(Duration::from_millis(ms))
    }

    #[test]
    fn a_node_is_free_where_the_key_has_gone_that_it_named() {
        let [first, second, third] = [0, 1, 2].map(NodeId::new);
        let mut keys = FreedKeys::default();
        let named = [(first, 1), (second, 2), (third, 2)];
        let nodes = |keys: &FreedKeys| keys.free(named).nodes;
        keys.handle_freed(first, 2);
        keys.handle_freed(second, 1);
        assert_eq!(nodes(&keys), NodeSet::default(), "others were in the way");
        keys.handle_freed(third, 2);
        assert_eq!(nodes(&keys), [third].into_iter().collect());
        keys.handle_release(1, at(70));
        let free = Free { nodes: [first, third].into_iter().collect(), from: at(70) };
        assert_eq!(keys.free(named), free);
        keys.handle_release(2, at(30));
        let free = Free { nodes: [first, second, third].into_iter().collect(), from: at(70) };
        assert_eq!(keys.free(named), free, "from when the last of them is free");
        keys.handle_begin();
        assert_eq!(keys.free(named), Free::default(), "the next attempt has seen that");
    }

    #[test]
    fn what_a_node_has_let_go_by_itself_need_not_be_waited_for() {
        let node = NodeId::new(0);
        let mut keys = FreedKeys::default();
        keys.handle_release(0, at(9));
        keys.handle_freed(node, 0);
        let nodes = [node].into_iter().collect();
        assert_eq!(keys.free([(node, 0)]), Free { nodes, from: Time::default() });
    }
}
