//! How a node stands and what it says, for whoever is told of that.

use super::backlog::Backlog;
use super::queued_command::QueuedCommand;
use super::shared::{NodeShared, NodeState};
use crate::observe::{
    ConnectFailed, ConnectionClosed, ConnectionOpened, NodeAnswer, NodeAnswered, NodeChanged,
    NodeStanding, ReleasesOwed, Weight,
};
use crate::protocol::Time;
use crate::sync::lock;
use crate::wire::{Answer, NodeFailure};
use std::sync::atomic::Ordering;
use std::time::Duration;

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

    /// Emits that a connection was opened. `reads_clock`: the server permits `TIME`.
    pub(super) fn tell_opened(&self, reads_clock: bool) {
        let connections = self.connections.fetch_add(1, Ordering::AcqRel) + 1;
        let observers = &self.environment.observers;
        let weight = if reads_clock { Weight::Detail } else { Weight::Trouble };
        if observers.wants(weight) {
            let event = ConnectionOpened { node: &self.name, reads_clock, connections };
            observers.tell(weight, &event);
        }
    }

    /// There is one connection less; without a `reason`, as all is done.
    pub(super) fn tell_closed(&self, reason: Option<&NodeFailure>) {
        let connections = self.connections.fetch_sub(1, Ordering::AcqRel) - 1;
        let observers = &self.environment.observers;
        if observers.wants(Weight::Detail) {
            let event = ConnectionClosed { node: &self.name, reason, connections };
            observers.tell(Weight::Detail, &event);
        }
    }

    /// A connection could not be made.
    pub(super) fn tell_unreachable(&self, reason: &NodeFailure) {
        let observers = &self.environment.observers;
        if observers.wants(Weight::Detail) {
            observers.tell(Weight::Detail, &ConnectFailed { node: &self.name, reason });
        }
    }

    /// True if anybody is to be told what the node answers.
    pub(super) fn are_answers_wanted(&self) -> bool {
        self.environment.observers.wants(Weight::Detail)
    }

    /// The node has given this `answer` to `command`.
    pub(super) fn tell_answer(
        &self,
        command: &QueuedCommand,
        answer: &Answer,
        round_trip: Option<Duration>,
    ) {
        let Some(asked) = command.asked() else { return };
        let answer = match answer {
            Answer::Granted(_) => NodeAnswer::Granted,
            Answer::Denied(_) => NodeAnswer::Held,
            Answer::Missing { .. } => NodeAnswer::Missing,
            Answer::Excluded(failure) | Answer::Failed(failure) => NodeAnswer::Failed(failure),
        };
        let event = NodeAnswered { node: &self.name, asked, answer, round_trip };
        self.environment.observers.tell(Weight::Detail, &event);
    }

    /// The `command` has failed without an answer: that is its vote, and is told.
    pub(super) fn fail(&self, command: &mut QueuedCommand, failure: NodeFailure) {
        let answer = Answer::Failed(failure);
        if self.are_answers_wanted() {
            self.tell_answer(command, &answer, None);
        }
        command.answer(answer);
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
        let before = if owed > known {
            all.fetch_add(owed - known, Ordering::AcqRel)
        } else {
            all.fetch_sub(known - owed, Ordering::AcqRel)
        };
        let owed = before + owed - known;
        let observers = &self.node.environment.observers;
        if observers.wants(Weight::Detail) {
            let event = ReleasesOwed { node: &self.node.name, owed, before };
            observers.tell(Weight::Detail, &event);
        }
    }
}
