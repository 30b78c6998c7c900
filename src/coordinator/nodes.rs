//! The nodes of a client, and whether one of them needs a turn of the driver.

use super::command::NodeCommand;
use super::context::Context;
use super::node::Node;
use crate::protocol::{NodeId, NodeSet, Time};
use std::ops::{Index, IndexMut};

/// Caches the timeout of each node, and whether it needs a turn, until the node is accessed mutably.
pub(super) struct Nodes {
    each: Box<[Node]>,
    /// Nodes whose cached state may be wrong.
    changed: NodeSet,
    timeouts: Box<[Option<Time>]>,
    /// True if a node had a connection to open or bytes to write when it was last checked.
    is_due: bool,
    /// True if commands were submitted since the last [`take_submitted`](Self::take_submitted).
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

    /// True if a node needed a turn since the last call.
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

    /// The next timeout of a node.
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
