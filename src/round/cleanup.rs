//! A claim on the nodes that is given up when it is dropped.

use crate::node::{Ballot, Claim, Nodes, QueuedCommand};
use crate::protocol::{NodeId, Time, Ttl};
use crate::wire::{CoolDown, Key, Value};
use std::sync::Arc;

/// I5: armed before the first send, and whatever happens then (a refusal, a dropped future, a
/// panic), every node is told to release. Nothing here waits or needs a runtime.
pub(crate) struct ReleaseGuard {
    claim: Arc<Claim>,
    nodes: Arc<Nodes>,
    is_armed: bool,
    /// Who waits for the keys in this process, unless the attempt for them was refused.
    listener: Option<Arc<dyn ReleaseListener>>,
    /// What stays in its place, whoever gives it up, once it was won.
    cooling: Option<Arc<CoolDown>>,
}

/// Who waits for locks in this process.
pub(crate) trait ReleaseListener: Send + Sync {
    /// A lock on `key` has ended in this process, and the deletes are in the mailboxes. It can be
    /// had from `at` on. `has_rivals` if another client tried to acquire it.
    fn handle_release(&self, key: &Key, at: Time, has_rivals: bool);
}

impl ReleaseGuard {
    pub(crate) fn new(
        claim: Arc<Claim>,
        nodes: Arc<Nodes>,
        listener: Arc<dyn ReleaseListener>,
    ) -> Self {
        Self { claim, nodes, is_armed: true, listener: Some(listener), cooling: None }
    }

    pub(crate) fn claim(&self) -> &Arc<Claim> {
        &self.claim
    }

    pub(crate) fn nodes(&self) -> &Arc<Nodes> {
        &self.nodes
    }

    /// The attempt was refused: what it leaves stands in nobody's way but for a moment, and nobody is
    /// told when that ends, but of nodes that grant it later. (An attempt that is cut off may have won, and others were refused for it.)
    pub(crate) fn note_refused(&mut self) {
        self.listener = None;
        self.claim.note_outvoted();
    }

    /// Whenever it is given up, nobody is to have the lock before `until`.
    pub(crate) fn keep_until(&mut self, until: Time) {
        if self.cooling.as_ref().is_none_or(|known| known.until < until) {
            self.cooling =
                Some(Arc::new(CoolDown { value: Value::cool_down(self.nodes.random()), until }));
        }
    }

    /// It can be had as soon as it is given up.
    pub(crate) fn keep_no_longer(&mut self) {
        self.cooling = None;
    }

    /// Gives the claim up by way of `nodes`, with a vote from each; lets nobody have the lock for
    /// `cool_down` from `t1` on.
    pub(crate) fn release(
        mut self,
        nodes: &Nodes,
        (t1, cool_down): (Time, Option<Ttl>),
        ballot: impl Fn(NodeId) -> Ballot,
    ) {
        if let Some(cool_down) = cool_down {
            self.keep_until(t1.after(cool_down.as_duration()));
        }
        self.give_up(nodes, |node| Some(ballot(node)));
    }

    fn give_up(&mut self, nodes: &Nodes, ballot: impl Fn(NodeId) -> Option<Ballot>) {
        if !std::mem::take(&mut self.is_armed) {
            return;
        }
        let claim = &self.claim;
        claim.withdraw();
        let now = self.nodes.clock().now();
        let cooling = self.cooling.take().filter(|cooling| now < cooling.until);
        match &cooling {
            None => nodes.send_each(|node| QueuedCommand::release(claim.clone(), ballot(node))),
            Some(cooling) => nodes.send_each(|node| {
                QueuedCommand::cool_down(claim.clone(), cooling.clone(), ballot(node))
            }),
        }
        // The deletes are in the mailboxes: what is put there from now on comes after them (I8).
        if let Some(listener) = self.listener.take() {
            let at = cooling.map_or(now, |cooling| cooling.until);
            let has_rivals = claim.was_refused();
            claim.keys().iter().for_each(|key| listener.handle_release(key, at, has_rivals));
        }
    }
}

impl Drop for ReleaseGuard {
    fn drop(&mut self) {
        // 1. A process holds a lock, and forks. 2. The child drops its copy of the lease, or closes the client. 3. The
        // lock is gone while the parent holds it: so only who asks for a release in the child has one.
        if self.is_armed && self.nodes.is_inherited() {
            self.is_armed = false;
            return;
        }
        let nodes = self.nodes.clone();
        self.give_up(&nodes, |_| None);
    }
}
