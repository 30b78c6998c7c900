//! All nodes of a client, with a cache of each node's next timeout.

use super::command::NodeCommand;
use super::context::Context;
use super::node::Node;
use crate::protocol::{NodeId, NodeSet, Time};
use std::ops::{Index, IndexMut};

/// The nodes of a client, indexed by [`NodeId`]. Caches the next timeout of each node. Mutable access to a node marks
/// its cached timeout as outdated.
pub(super) struct Nodes {
    each: Box<[Node]>,
    /// Nodes whose cached timeout may be outdated.
    changed: NodeSet,
    timeouts: Box<[Option<Time>]>,
    /// Whether a node has had a connection to open or bytes to write since the last call of
    /// [`take_due`](Self::take_due).
    is_due: bool,
    /// Whether commands were submitted since the last call of [`take_submitted`](Self::take_submitted).
    has_submitted: bool,
}

impl Nodes {
    pub(super) fn new(each: Box<[Node]>) -> Self {
        let changed = each.iter().map(|node| node.id).collect();
        let timeouts = each.iter().map(|_| None).collect();
        Self { each, changed, timeouts, is_due: false, has_submitted: false }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.each.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        let Self { each, changed, .. } = self;
        each.iter_mut().inspect(|node| _ = changed.insert(node.id))
    }

    pub(super) fn take_due(&mut self, now: Time) -> bool {
        self.update(now);
        std::mem::take(&mut self.is_due)
    }

    pub(super) fn submit(&mut self, id: NodeId, command: NodeCommand, now: Time, cx: &mut Context) {
        self.has_submitted = true;
        self[id].submit(command, now, cx);
    }

    pub(super) fn take_submitted(&mut self) -> bool {
        std::mem::take(&mut self.has_submitted)
    }

    pub(super) fn next_timeout(&mut self, now: Time) -> Option<Time> {
        self.update(now);
        self.timeouts.iter().flatten().min().copied()
    }

    fn update(&mut self, now: Time) {
        for id in std::mem::take(&mut self.changed).iter() {
            let node = &self.each[id.index()];
            self.timeouts[id.index()] = node.next_timeout(now);
            self.is_due |= node.wants_connection(now) || node.wants_to_write(now);
        }
    }
}

impl Index<NodeId> for Nodes {
    type Output = Node;

    fn index(&self, node: NodeId) -> &Node {
        &self.each[node.index()]
    }
}

impl IndexMut<NodeId> for Nodes {
    fn index_mut(&mut self, node: NodeId) -> &mut Node {
        self.changed.insert(node);
        &mut self.each[node.index()]
    }
}
