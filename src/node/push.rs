//! What nodes say unasked.

use crate::protocol::NodeId;

/// Who wants to know when keys change on the nodes.
pub(crate) trait PushSink: Send + Sync {
    /// Something happened to `key` on `node`, or to any key if there is none: it may be free. It is
    /// a hint: it can come late, or never. Called from the node's task; must not block.
    fn handle_push(&self, node: NodeId, key: Option<&[u8]>);
}
