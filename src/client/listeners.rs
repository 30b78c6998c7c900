//! Receivers of the nodes' pushes.

use crate::acquire::WaitQueues;
use crate::lease::LeaseRegistry;
use crate::node::PushSink;
use crate::protocol::{NodeId, Time};
use std::sync::Arc;
use std::time::Duration;

/// Receivers of the nodes' invalidation pushes and clock steps.
pub(super) struct Listeners {
    pub(super) waiters: Arc<WaitQueues>,
    pub(super) registry: Arc<LeaseRegistry>,
}

impl PushSink for Listeners {
    fn handle_push(&self, node: NodeId, key: Option<&[u8]>) {
        self.waiters.handle_push(node, key);
        self.registry.handle_push(node, key);
    }

    fn handle_step(&self, node: NodeId, ahead: Duration, seen: Time) {
        self.registry.handle_step(node, ahead, seen);
    }
}
