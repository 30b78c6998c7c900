//! How a node stands, for whoever is told of that.

use super::backlog::Backlog;
use super::shared::{NodeShared, NodeState};
use crate::observe::{NodeChanged, NodeStanding, ReleasesOwed, Weight};
use crate::protocol::Time;
use crate::sync::lock;
use crate::wire::NodeFailure;
use std::sync::atomic::Ordering;

impl NodeShared {
    /// Looks how the node stands, and tells it if that is otherwise than before. Something may have changed, or
    /// only time have passed: an idle node is heard of every few seconds.
    pub(super) fn look(&self, now: impl FnOnce() -> Time) {
        let observers = &self.environment.observers;
        if !observers.wants(Weight::Trouble) {
            return;
        }
        let now = now();
        let Some((to, reason)) = self.standing(now) else { return };
        let Some(change) = observers.handle_standing(self.id, to, now) else { return };
        let event = NodeChanged {
            node: &self.name,
            from: change.from,
            to,
            reason: reason.as_ref(),
            after: change.after,
            counted: change.counted,
            nodes: change.nodes,
            needed: change.needed,
        };
        observers.tell(Weight::Trouble, &event);
    }

    /// How it stands, and why if it does not count; `None` while that is not known.
    fn standing(&self, now: Time) -> Option<(NodeStanding, Option<NodeFailure>)> {
        let state = lock(&self.status).0.clone();
        match state {
            // For the first time, or in the place of a connection that was lost: that takes a moment.
            NodeState::Connecting => return None,
            NodeState::Stalled => return Some((NodeStanding::Stalled, None)),
            NodeState::Down(failure) => return Some((NodeStanding::Down, Some(failure))),
            NodeState::Up => {}
        }
        if let Some(failure) = self.guard.failure(self.id, now) {
            // A young node may turn out to be one of a new deployment.
            let is_known = self.guard.is_settled(now);
            return is_known.then_some((NodeStanding::Quarantined, Some(failure)));
        }
        Some(match self.clocks.failure(self.id, now) {
            Some(failure) => (NodeStanding::Suspect, Some(failure)),
            None => (NodeStanding::Counted, None),
        })
    }
}

impl Backlog {
    /// Tells how many releases the node is owed, if that has changed.
    pub(super) fn tell_owed(&mut self) {
        let (known, owed) = (self.told_owed, self.owed.releases());
        if owed == known {
            return;
        }
        self.told_owed = owed;
        // Of all tasks of the node.
        let all = &self.node.owed_releases;
        let owed = if owed > known {
            all.fetch_add(owed - known, Ordering::AcqRel) + (owed - known)
        } else {
            all.fetch_sub(known - owed, Ordering::AcqRel) - (known - owed)
        };
        let observers = &self.node.environment.observers;
        if observers.wants(Weight::Detail) {
            observers.tell(Weight::Detail, &ReleasesOwed { node: &self.node.name, owed });
        }
    }
}
