//! What nodes say unasked.

use crate::protocol::NodeId;
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
