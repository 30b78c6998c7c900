//! Which nodes are free for an attempt that was refused, as far as is known.
//!
//! One key has gone where a node says so. Of several keys a node names one that is in its way, and nodes may
//! name different ones: what tells of another key says nothing. What a node names may be heard after what
//! tells that it has gone, so both are kept and compared when they are asked for. What has gone is kept once for
//! each key, whoever wants it, with the [`Moment`]: an attempt asks for what has gone since it began.
//!
//! Events in:
//!
//! - [`FreedKey::handle_freed`]: a node says that the key is gone there;
//! - [`FreedKey::handle_release`]: a lease of this process has ended, and its deletes are on their way to all nodes.
//!
//! Question: [`FreedKey::free_from`] is from when on a node is free of it.

use super::quorum::{NodeId, NodeSet};
use super::validity::Time;
use std::collections::BTreeMap;

/// Nodes that are free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Free {
    pub(crate) nodes: NodeSet,
    /// From then on.
    pub(crate) from: Time,
}

impl Free {
    /// `node` is free, too, from `at` on.
    pub(crate) fn insert(&mut self, node: NodeId, at: Time) {
        self.nodes.insert(node);
        self.from = self.from.max(at);
    }
}

/// What comes after what: it counts up, and is no time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    /// The next.
    pub(crate) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// When one key has gone last.
#[derive(Debug, Default)]
pub(crate) struct FreedKey {
    freed: BTreeMap<NodeId, Moment>,
    /// By a release of this process, and from when on it can be had.
    released: Option<(Moment, Time)>,
}

impl FreedKey {
    /// `node` says at that moment that it is gone there.
    pub(crate) fn handle_freed(&mut self, node: NodeId, moment: Moment) {
        self.freed.insert(node, moment);
    }

    /// A lease ends at that moment, so that it can be had from `at` on, on all nodes.
    pub(crate) fn handle_release(&mut self, at: Time, moment: Moment) {
        self.released = Some((moment, at));
    }

    /// From when on it can be had on `node`, if it has gone there after `began`.
    pub(crate) fn free_from(&self, node: NodeId, began: Moment) -> Option<Time> {
        if self.freed.get(&node).is_some_and(|moment| *moment > began) {
            return Some(Time::default());
        }
        self.released.filter(|(moment, _)| *moment > began).map(|(_, at)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(ms: u64) -> Time {
        Time::default().after(Duration::from_millis(ms))
    }

    fn moments() -> [Moment; 4] {
        let first = Moment::default();
        [first, first.next(), first.next().next(), first.next().next().next()]
    }

    #[test]
    fn a_key_has_gone_where_a_node_says_so_and_only_for_who_began_before() {
        let [first, second] = [0, 1].map(NodeId::new);
        let [start, one, two, three] = moments();
        let mut key = FreedKey::default();
        assert_eq!(key.free_from(first, start), None);
        key.handle_freed(first, two);
        assert_eq!(key.free_from(first, one), Some(Time::default()));
        assert_eq!(key.free_from(second, one), None, "nobody says that of this one");
        assert_eq!(key.free_from(first, two), None, "the next attempt has seen that");
        key.handle_freed(first, three);
        assert_eq!(key.free_from(first, two), Some(Time::default()));
    }

    #[test]
    fn a_release_is_one_on_all_nodes() {
        let [start, one, two, three] = moments();
        let mut key = FreedKey::default();
        key.handle_release(at(70), two);
        for node in [0, 1].map(NodeId::new) {
            assert_eq!(key.free_from(node, one), Some(at(70)));
            assert_eq!(key.free_from(node, two), None, "the next attempt has seen that");
        }
        key.handle_release(at(30), three);
        assert_eq!(key.free_from(NodeId::new(0), start), Some(at(30)), "it was taken meanwhile");
    }

    #[test]
    fn what_a_node_has_let_go_by_itself_need_not_be_waited_for() {
        let [start, one, two, _] = moments();
        let [first, second] = [0, 1].map(NodeId::new);
        let mut key = FreedKey::default();
        key.handle_release(at(9), one);
        key.handle_freed(first, two);
        assert_eq!(key.free_from(first, start), Some(Time::default()));
        assert_eq!(key.free_from(second, start), Some(at(9)));
    }

    #[test]
    fn several_nodes_are_free_once_the_last_is() {
        let [first, second, third] = [0, 1, 2].map(NodeId::new);
        let mut free = Free::default();
        for (node, ms) in [(first, 30), (second, 70), (third, 0)] {
            free.insert(node, at(ms));
        }
        let nodes = [first, second, third].into_iter().collect();
        assert_eq!(free, Free { nodes, from: at(70) });
    }
}
