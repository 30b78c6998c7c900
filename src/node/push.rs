//! What nodes say unasked.

use super::pushes::Pushed;
use super::shared::NodeShared;
use crate::protocol::NodeId;
use crate::sync::contain;
use crate::time::clock;
use std::time::Duration;

/// Who wants to know when keys change on the nodes.
pub(crate) trait PushSink: Send + Sync {
    /// Something happened to `key` on `node`, or to any key if there is none: it may be free. It is
    /// a hint: it can come late, or never. Called from the node's task; must not block.
    fn handle_push(&self, node: NodeId, key: Option<&[u8]>);

    /// A node's clock has stepped ahead by so much at most, or ours has stood still: keys end sooner by
    /// that than our leases believe. Called from a node's task; must not block.
    fn handle_step(&self, ahead: Duration);
}

impl NodeShared {
    /// Tells who waits that keys have changed.
    pub(super) fn pass_on(&self, pushed: Pushed) {
        if pushed.is_flush {
            self.guard.handle_flush(self.id, clock::now());
        }
        if pushed.is_flush || pushed.has_lost {
            self.tell(None);
        }
        for key in pushed.keys {
            self.tell(Some(&key));
        }
    }

    /// Tells who waits that something happened to `key`, or to any. A waker of theirs that panics
    /// takes nothing else with it.
    pub(super) fn tell(&self, key: Option<&[u8]>) {
        contain(|| self.pushes.handle_push(self.id, key));
    }
}
