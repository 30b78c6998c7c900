//! What nodes say unasked.

use super::connection::Pushed;
use super::shared::NodeShared;
use crate::clock;
use crate::protocol::NodeId;

/// Who wants to know when keys change on the nodes.
pub(crate) trait PushSink: Send + Sync {
    /// Something happened to `key` on `node`, or to any key if there is none: it may be free. It is
    /// a hint: it can come late, or never. Called from the node's task; must not block.
    fn handle_push(&self, node: NodeId, key: Option<&[u8]>);

    /// The nodes have shown that more time has passed than our clock says: keys end sooner than our
    /// leases believe. Called from a node's task; must not block.
    fn handle_standstill(&self);
}

impl NodeShared {
    /// Tells who waits that keys have changed.
    pub(super) fn pass_on(&self, pushed: Pushed) {
        match pushed {
            Pushed::All => {
                self.quarantine.handle_flush(clock::now());
                self.pushes.handle_push(self.id, None);
            }
            Pushed::Keys(keys) => {
                for key in keys {
                    self.pushes.handle_push(self.id, Some(&key));
                }
            }
        }
    }
}
