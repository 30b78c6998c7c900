//! A claim on the nodes that is given up when it is dropped.

use crate::clock;
use crate::node::{Ballot, Claim, Cooling, Nodes, Order};
use crate::protocol::{NodeId, Time};
use std::sync::Arc;

/// I5: armed before the first send, and whatever happens then (a refusal, a dropped future, a
/// panic), every node is told to release. Nothing here waits or needs a runtime.
pub(crate) struct Hold {
    claim: Arc<Claim>,
    nodes: Arc<Nodes>,
    is_armed: bool,
    /// Who waits for the keys in this process, once they were won.
    heirs: Option<Arc<dyn Heirs>>,
}

/// Who waits for locks in this process.
pub(crate) trait Heirs: Send + Sync {
    /// A lock on `key` has ended in this process, and the deletes are in the mailboxes. It can be
    /// had from `at` on.
    fn handle_release(&self, key: &[u8], at: Time);
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

    /// Gives the claim up by way of `nodes`, with a vote from each; leaves `cooling` in its place.
    pub(crate) fn release(
        mut self,
        nodes: &Nodes,
        cooling: Option<&Arc<Cooling>>,
        ballot: impl Fn(NodeId) -> Ballot,
    ) {
        self.give_up(cooling.map(|cooling| cooling.until), |claim| match cooling {
            None => nodes.send_each(|node| Order::release(claim.clone(), Some(ballot(node)))),
            Some(cooling) => nodes
                .send_each(|node| Order::cool_down(claim.clone(), cooling.clone(), ballot(node))),
        });
    }

    fn give_up(&mut self, until: Option<Time>, send: impl FnOnce(&Arc<Claim>)) {
        if !std::mem::take(&mut self.is_armed) {
            return;
        }
        self.claim.withdraw();
        send(&self.claim);
        // The deletes are in the mailboxes: what is put there from now on comes after them (I8).
        if let Some(heirs) = self.heirs.take() {
            let at = until.unwrap_or_else(clock::now);
            self.claim.keys().iter().for_each(|key| heirs.handle_release(key, at));
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let nodes = self.nodes.clone();
        self.give_up(None, |claim| {
            nodes.send_each(|_| Order::release(claim.clone(), None));
        });
    }
}
