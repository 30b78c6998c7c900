//! Events of a node: its health, its connections, its commands and its pending releases.

use super::backlog::Backlog;
use super::queued_command::QueuedCommand;
use super::shared::NodeShared;
use crate::observe::event::{Event, NodeHealth};
use crate::observe::{NodeState, NodeVote, Weight};
use crate::protocol::Time;
use crate::sync::lock;
use crate::wire::{Answer, NodeFailure};
use std::sync::atomic::Ordering;
use std::time::Duration;

impl NodeShared {
    /// Emits [`Event::NodeHealthChanged`] if the health has changed. To be called when something may have changed. The
    /// health can also change as time passes, and an idle node replies every few seconds.
    pub(super) fn emit_health(&self, now: impl FnOnce() -> Time) {
        let observers = &self.environment.observers;
        if !observers.wants(Weight::Trouble) {
            return;
        }
        let now = now();
        let Some((to, reason)) = self.health(now) else { return };
        let Some(change) = observers.handle_health(self.id, to, now) else { return };
        observers.emit(Weight::Trouble, || Event::NodeHealthChanged {
            node: self.name.clone(),
            from: change.from,
            to,
            reason,
            lasted: change.lasted,
            counted: change.counted,
            nodes: change.nodes,
            needed: change.needed,
        });
    }

    /// The health, and the reason if the node does not count. `None` while the health is not known.
    fn health(&self, now: Time) -> Option<(NodeHealth, Option<NodeFailure>)> {
        let state = lock(&self.status).0.clone();
        match state {
            // The first connection, or the immediate replacement of a broken one.
            NodeState::Connecting => return None,
            NodeState::Stalled => return Some((NodeHealth::Stalled, None)),
            NodeState::Down(failure) => return Some((NodeHealth::Down, Some(failure))),
            NodeState::Up => {}
        }
        if let Some(failure) = self.guard.failure(self.id, now) {
            // A recently started node may turn out to belong to a new deployment.
            let is_known = self.guard.is_settled(now);
            return is_known.then_some((NodeHealth::Quarantined, Some(failure)));
        }
        Some(match self.clocks.failure(self.id, now) {
            Some(failure) => (NodeHealth::Suspect, Some(failure)),
            None => (NodeHealth::Counted, None),
        })
    }

    /// Counts a new connection. `reads_clock`: the server permits `TIME`.
    pub(super) fn emit_opened(&self, reads_clock: bool) {
        let connections = self.connections.fetch_add(1, Ordering::AcqRel) + 1;
        let weight = if reads_clock { Weight::Detail } else { Weight::Trouble };
        self.environment.observers.emit(weight, || Event::ConnectionOpened {
            node: self.name.clone(),
            reads_clock,
            connections,
        });
    }

    /// Counts a closed connection. `reason` is `None` if the client was closed or dropped.
    pub(super) fn emit_closed(&self, reason: Option<&NodeFailure>) {
        let connections = self.connections.fetch_sub(1, Ordering::AcqRel) - 1;
        self.environment.observers.emit(Weight::Detail, || Event::ConnectionClosed {
            node: self.name.clone(),
            reason: reason.cloned(),
            connections,
        });
    }

    pub(super) fn emit_connect_failed(&self, reason: &NodeFailure) {
        self.environment.observers.emit(Weight::Detail, || Event::ConnectFailed {
            node: self.name.clone(),
            reason: reason.clone(),
        });
    }

    /// Emits the reply `answer` to `command`. `round_trip` is `None` without a reply.
    pub(super) fn emit_command(
        &self,
        command: &QueuedCommand,
        answer: &Answer,
        round_trip: Option<Duration>,
    ) {
        let Some(command) = command.kind() else { return };
        self.environment.observers.emit(Weight::Detail, || Event::CommandFinished {
            node: self.name.clone(),
            command,
            vote: match answer {
                Answer::Granted(_) => NodeVote::Granted,
                Answer::Denied(_) => NodeVote::Held,
                Answer::Missing { .. } => NodeVote::Missing,
                Answer::Excluded(failure) | Answer::Failed(failure) => {
                    NodeVote::Failed(failure.clone())
                }
            },
            round_trip,
        });
    }

    /// Handles a `command` that has failed without a reply: emits the failure, and casts it as the vote.
    pub(super) fn fail(&self, command: &mut QueuedCommand, failure: NodeFailure) {
        let answer = Answer::Failed(failure);
        self.emit_command(command, &answer, None);
        command.answer(answer);
    }
}

impl Backlog {
    /// Emits the node's number of pending releases if this backlog's number has changed.
    pub(super) fn emit_pending_releases(&mut self) {
        let (known, owed) = (self.reported_pending, self.owed.releases());
        if owed == known {
            return;
        }
        self.reported_pending = owed;
        // The sum over all tasks of the node.
        let all = &self.node.owed_releases;
        let before = if owed > known {
            all.fetch_add(owed - known, Ordering::AcqRel)
        } else {
            all.fetch_sub(known - owed, Ordering::AcqRel)
        };
        self.node.environment.observers.emit(Weight::Detail, || Event::PendingReleasesChanged {
            node: self.node.name.clone(),
            before,
            pending: before + owed - known,
        });
    }
}
