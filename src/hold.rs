//! A claim on the nodes that is given up when it is dropped.

use crate::node::{Ballot, Claim, Nodes, Order};
use crate::protocol::NodeId;
use std::sync::Arc;

/// I5: armed before the first send, and whatever happens then (a refusal, a dropped future, a
/// panic), every node is told to release. Nothing here waits or needs a runtime.
pub(crate) struct Hold {
    claim: Arc<Claim>,
    nodes: Arc<Nodes>,
    is_armed: bool,
    /// Who waits for the key in this process, once it was won.
    heirs: Option<Arc<dyn Heirs>>,
}

/// Who waits for locks in this process.
pub(crate) trait Heirs: Send + Sync {
    /// A lock on `key` has ended in this process, and the deletes are in the mailboxes.
    fn handle_release(&self, key: &[u8]);
}

impl Hold {
    pub(crate) fn new(claim: Arc<Claim>, nodes: Arc<Nodes>) -> Self {
        Self { claim, nodes, is_armed: true, heirs: None }
    }

    pub(crate) fn claim(&self) -> &Arc<Claim> {
        &self.claim
    }

    pub(crate) fn nodes(&self) -> &Arc<Nodes> {
        &self.nodes
    }

    /// From now on the lock is held: whoever waits for it in this process is told when it ends.
    pub(crate) fn note_won(&mut self, heirs: Arc<dyn Heirs>) {
        self.heirs = Some(heirs);
    }

    /// The deletes are in the mailboxes: what is put there from now on comes after them (I8).
    fn pass_on(&self) {
        if let Some(heirs) = &self.heirs {
            heirs.handle_release(self.claim.key());
        }
    }

    /// Gives the claim up by way of `nodes`, with a vote from each.
    pub(crate) fn release(&mut self, nodes: &Nodes, ballot: impl Fn(NodeId) -> Ballot) {
        self.is_armed = false;
        self.claim.withdraw();
        nodes.send_each(|node| Order::release(self.claim.clone(), Some(ballot(node))));
        self.pass_on();
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.is_armed {
            self.claim.withdraw();
            self.nodes.send_each(|_| Order::release(self.claim.clone(), None));
            self.pass_on();
        }
    }
}
