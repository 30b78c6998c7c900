//! Where commands come in for a node's task.

use super::handover::Bell;
use super::mailbox;
use super::queued_command::QueuedCommand;
use super::shared::NodeShared;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedReceiver;

/// What a node's task is told by others.
pub(super) struct Inlet {
    pub(super) mailbox: UnboundedReceiver<QueuedCommand>,
    /// Rings when another task has left something, and at the end.
    pub(super) bell: Arc<Bell>,
}

impl Inlet {
    pub(super) fn new(node: &NodeShared, mailbox: UnboundedReceiver<QueuedCommand>) -> Self {
        Self { mailbox, bell: node.handover.enter() }
    }

    /// Nothing comes in any more: releases go to other tasks from here on.
    pub(super) fn close(&mut self) {
        self.mailbox.close();
    }

    /// What has come in by then, or comes in at this moment, goes to `rescue`.
    pub(super) fn empty(&mut self, rescue: impl FnMut(QueuedCommand)) {
        mailbox::empty(&mut self.mailbox, rescue);
    }
}
