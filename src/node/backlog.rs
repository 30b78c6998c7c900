//! What waits to be written to a node, whether there is a connection or not.

use super::inlet::Inlet;
use super::line::Line;
use super::links::{Links, Phase};
use super::queued_command::QueuedCommand;
use super::shared::NodeShared;
use super::timer_clock::Moment;
use crate::observe::NodeState;
use crate::protocol::{Backoff, NodeId, PendingCommands, PendingWork, Time};
use crate::wire::{NodeFailure, Value};
use std::sync::Arc;

/// Commands in one pipeline.
pub(super) const MAX_COMMANDS: usize = 512;

/// The commands of one task: those that come in, those that are owed, and those that tasks of other
/// runtimes have left. It answers for the node while nothing can be written.
pub(super) struct Backlog {
    pub(super) node: Arc<NodeShared>,
    /// How the nodes stand that this runtime's tasks serve.
    pub(super) links: Arc<Links>,
    /// True once all handles are gone: finish what is owed, then end.
    pub(super) is_closed: bool,
    /// True once the client was closed, and nothing was owed by then.
    pub(super) is_ended: bool,
    /// Taken from the mailbox and not yet written.
    pub(super) inbox: Vec<QueuedCommand>,
    /// By the value of their claim, which no other has.
    pub(super) owed: PendingCommands<QueuedCommand, Value>,
    /// When what is owed is written again.
    pub(super) repeats: Backoff,
    /// When a `MOVED` is followed by a new connection again.
    pub(super) moves: Backoff,
    /// When the next isolated release is written.
    pub(super) isolated: Backoff,
    /// The number of pending releases in the last event.
    pub(super) reported_pending: usize,
}

impl QueuedCommand {
    /// What this is to a node that has not done it.
    fn owed(&self, node: NodeId) -> PendingWork<Value> {
        if self.is_release() {
            return PendingWork::Release(self.pending_release(node));
        }
        let claim = self.claim();
        self.extends_until().map_or(PendingWork::None, |until| PendingWork::Extension {
            claim: claim.value().clone(),
            until,
            is_withdrawn: claim.is_withdrawn(),
        })
    }
}

impl Backlog {
    pub(super) fn new(node: Arc<NodeShared>, links: Arc<Links>) -> Self {
        Self {
            repeats: Backoff::for_refused_commands(),
            moves: Backoff::for_moved(),
            isolated: Backoff::for_isolated_releases(),
            owed: PendingCommands::new(),
            node,
            links,
            is_closed: false,
            is_ended: false,
            inbox: Vec::new(),
            reported_pending: 0,
        }
    }

    /// Tells all who ask where the connection is.
    pub(super) fn note_state(&self, state: NodeState) {
        let phase = match state {
            NodeState::Connecting => Phase::Connecting,
            NodeState::Up => Phase::Up,
            NodeState::Stalled => Phase::Stalled,
            NodeState::Down(_) => Phase::Down,
        };
        self.node.set_state(state);
        self.links.note(self.node.id, phase);
        self.node.emit_health(|| self.node.now());
    }

    /// Tells all tasks whether the node owes an answer for longer than the node timeout.
    pub(super) fn note_silence(&self, is_silent: bool) {
        self.links.note_silence(self.node.id, is_silent);
    }

    /// Looks whether the client was closed. True if nothing more is to be served than what is owed.
    pub(super) fn is_over(&mut self) -> bool {
        self.is_ended = self.node.handover.is_ended();
        self.is_closed || self.is_ended
    }

    /// True if nothing waits to be written, here or for any task.
    pub(super) fn has_nothing_to_write(&self) -> bool {
        self.inbox.is_empty() && self.owed.is_empty() && !self.node.handover.has_left()
    }

    /// When pending commands may be written again; `None` if there are none. An isolated release waits until
    /// the connection `is_idle`.
    pub(super) fn next_repeat(&self, is_idle: bool) -> Option<Time> {
        let repeat = self.owed.has_shared().then(|| self.repeats.next_try());
        let isolated = (is_idle && self.owed.has_isolated()).then(|| self.isolated.next_try());
        [repeat, isolated].into_iter().flatten().min()
    }

    /// Takes what is owed and due, for one pipeline.
    pub(super) fn take_owed(&mut self, now: Moment) -> Vec<QueuedCommand> {
        if !self.owed.has_shared() || now.timer < self.repeats.next_try() {
            return Vec::new();
        }
        self.prune_owed(now.ours);
        self.owed.take(MAX_COMMANDS)
    }

    /// True if an isolated release is due.
    pub(super) fn has_isolated(&self, now: Moment) -> bool {
        self.owed.has_isolated() && now.timer >= self.isolated.next_try()
    }

    /// True if an isolated release is not all that can be written.
    pub(super) fn has_shared(&self, now: Moment) -> bool {
        let is_due = self.owed.has_shared() && now.timer >= self.repeats.next_try();
        is_due || !self.inbox.is_empty() || self.node.handover.has_left()
    }

    /// Takes an isolated release, if one is of use.
    pub(super) fn take_isolated(&mut self, now: Moment) -> Option<QueuedCommand> {
        self.prune_owed(now.ours);
        self.owed.take_isolated()
    }

    fn prune_owed(&mut self, now: Time) {
        let node = self.node.id;
        self.owed.prune(now, self.is_closed, |command| command.owed(node));
    }

    /// Drops what has no use any more, of what is owed and of what others have left.
    pub(super) fn prune(&mut self) {
        self.prune_owed(self.node.now());
        self.node.handover.prune(self.node.id, self.node.now());
        self.emit_pending_releases();
    }

    /// Keeps a command whose vote has been cast, if it is owed to the node.
    pub(super) fn keep(&mut self, command: QueuedCommand) {
        let owed = command.owed(self.node.id);
        self.owed.add(command, owed);
    }

    /// Keeps what others have left, if no further task will be started.
    pub(super) fn keep_left(&mut self) {
        if self.is_closed {
            self.node.handover.take_all().into_iter().for_each(|command| self.keep(command));
        }
    }

    /// Answers what has come in and cannot be written now, and keeps what has to be written later.
    pub(super) fn refuse(&mut self, failure: &NodeFailure, now: Moment) {
        for mut command in std::mem::take(&mut self.inbox) {
            if command.is_void(self.node.id, now.ours) {
                command.answer_void(self.node.id);
            } else {
                self.node.fail(&mut command, failure.clone());
                self.keep(command);
            }
        }
        self.emit_pending_releases();
    }

    /// Answers what waits for the first connection and has no use any more (I12): rounds that are
    /// over, and their releases. What is left belongs to rounds under way and to leases.
    pub(super) fn drop_void(&mut self) {
        let now = self.node.now();
        for command in std::mem::take(&mut self.inbox) {
            if command.is_void(self.node.id, now) {
                command.answer_void(self.node.id);
            } else {
                self.inbox.push(command);
            }
        }
    }

    /// The node answers again: what is owed may be written at once.
    pub(super) fn handle_recovery(&mut self, now: Time) {
        self.repeats.recover(now);
        self.note_silence(false);
        self.note_state(NodeState::Up);
    }

    /// A connection is gone, and what was not answered on it may still run. `may_deliver` says whether
    /// something can still come from it.
    pub(super) fn handle_loss(&mut self, line: &mut Line, may_deliver: bool, why: &NodeFailure) {
        self.node.guard.handle_loss(self.node.id);
        let unanswered: Vec<_> = line.take_unanswered().collect();
        if may_deliver {
            self.node.handover.note_broken(line.broken());
        }
        self.handle_unanswered(unanswered, why);
    }

    /// Hands all that is owed, or waits, to others.
    pub(super) fn hand_over(&mut self, inlet: &mut Inlet) {
        // From here on releases go to other tasks, which must know by then which connections have to be killed.
        inlet.close();
        self.node.handover.exit(&inlet.bell);
        let owed = self.owed.take_releases().collect::<Vec<_>>();
        let waiting = std::mem::take(&mut self.inbox);
        for command in owed.into_iter().chain(waiting) {
            self.node.rescue(command);
        }
        inlet.empty(|command| self.node.rescue(command));
        self.emit_pending_releases();
    }
}
