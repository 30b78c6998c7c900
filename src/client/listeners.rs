//! Receivers of the nodes' pushes.

#[cfg(not(quorlock_coordinator))]
use crate::acquire::WaitQueues;
#[cfg(not(quorlock_coordinator))]
use crate::lease::LeaseRegistry;
use crate::node::PushSink;
use crate::protocol::{NodeId, Time};
use std::sync::Arc;
use std::time::Duration;

#[cfg(quorlock_coordinator)]
pub(super) struct Listeners;
#[cfg(quorlock_coordinator)]
impl PushSink for Listeners {
    fn handle_push(&self, _: NodeId, _: Option<&[u8]>) {}
    fn handle_step(&self, _: NodeId, _: Duration, _: Time) {}
}

#[cfg(not(quorlock_coordinator))]
/// Receivers of the nodes' invalidation pushes and clock steps.
pub(super) struct Listeners {
    pub(super) waiters: Arc<WaitQueues>,
    pub(super) registry: Arc<LeaseRegistry>,
}

#[cfg(not(quorlock_coordinator))]
impl PushSink for Listeners {
    fn handle_push(&self, node: NodeId, key: Option<&[u8]>) {
        self.waiters.handle_push(node, key);
        self.registry.handle_push(node, key);
    }

    fn handle_step(&self, node: NodeId, ahead: Duration, seen: Time) {
        self.registry.handle_step(node, ahead, seen);
    }
}
