//! What nodes say unasked.

use crate::protocol::{NodeId, Time};
use std::time::Duration;

/// Who wants to know when keys change on the nodes.
pub(crate) trait PushSink: Send + Sync {
    /// Something happened to `key` on `node`, or to any key if there is none: it may be free. It is
    /// a hint: it can come late, or never. Called from the node's task; must not block.
    fn handle_push(&self, node: NodeId, key: Option<&[u8]>);

    /// The clock of `node` was seen at `seen` to have stepped ahead by so much at most, or ours to have stood still: keys
    /// end sooner by that than our leases believe. Called from a node's task; must not block.
    fn handle_step(&self, node: NodeId, ahead: Duration, seen: Time);
}
