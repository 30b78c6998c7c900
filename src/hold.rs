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
}

impl Hold {
    pub(crate) fn new(claim: Arc<Claim>, nodes: Arc<Nodes>) -> Self {
        Self { claim, nodes, is_armed: true }
    }

    pub(crate) fn claim(&self) -> &Arc<Claim> {
        &self.claim
    }

    pub(crate) fn nodes(&self) -> &Arc<Nodes> {
        &self.nodes
    }

    /// Gives the claim up by way of `nodes`, with a vote from each.
    pub(crate) fn release(&mut self, nodes: &Nodes, ballot: impl Fn(NodeId) -> Ballot) {
        self.is_armed = false;
        self.claim.withdraw();
        nodes.send_each(|node| Order::release(self.claim.clone(), Some(ballot(node))));
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.is_armed {
            self.claim.withdraw();
            self.nodes.send_each(|_| Order::release(self.claim.clone(), None));
        }
    }
}
