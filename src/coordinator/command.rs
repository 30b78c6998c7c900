//! A command for one node, from its submission until the node has executed it or it is no longer needed.

use super::claim::Claim;
use super::round_command::RoundCommand;
use super::slots::RoundId;
use crate::observe::event::CommandKind;
use crate::protocol::{Drift, NodeId, PendingRelease, PendingWork, Time, Ttl, valid_until};
use crate::wire::{
    Answer, Capabilities, Command, Conflict, Form, Grant, NativeCommand, NodeFailure, ReplyShape,
    Requests, Value,
};
use std::sync::Arc;

/// The number of consecutive connections that end without a reply to a release before the release is sent alone. The
/// release itself may be the reason why the server closes the connections.
const ISOLATED_AFTER: u8 = 2;

#[derive(Debug)]
pub(super) struct NodeCommand {
    shared: Arc<RoundCommand>,
    /// The round that counts the reply as the node's vote. `None` once the node has voted (I1), or if no round needs
    /// the vote.
    round: Option<RoundId>,
    form: Form,
    /// The last write of the command. `None` if the command was never written, or if its first write had no effect.
    written: Option<Written>,
    unanswered: u8,
    /// The first time at which the node was reachable with this command pending: the node replied with an error, or the
    /// client wrote the command again over a new connection.
    reached: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Written {
    /// Whether this is the first write that may have had an effect.
    is_first: bool,
    at: Time,
    /// The TTL that all keys have if the node grants the command, or `None` if the command sets no TTL.
    ttl: Option<Ttl>,
    shape: ReplyShape,
}

impl NodeCommand {
    pub(super) fn new(shared: Arc<RoundCommand>, round: Option<RoundId>) -> Self {
        let (form, written, unanswered, reached) = (Form::Native, None, 0, None);
        Self { shared, round, form, written, unanswered, reached }
    }

    pub(super) fn claim(&self) -> &Claim {
        &self.shared.claim
    }

    fn command(&self) -> &Command {
        &self.shared.command
    }

    /// Takes the round that counts the reply as the node's vote. Returns `None` after the first call.
    pub(super) fn take_round(&mut self) -> Option<RoundId> {
        self.round.take()
    }

    pub(super) fn has_round(&self) -> bool {
        self.round.is_some()
    }

    /// Returns true for a release that was written again and has not voted. If its keys are missing, the node has
    /// executed an earlier write of the release.
    fn is_repeated_release(&self) -> bool {
        let was_repeated = self.written.is_some_and(|written| !written.is_first);
        self.is_release() && self.has_round() && was_repeated
    }

    pub(super) fn is_release(&self) -> bool {
        matches!(self.command(), Command::Release { .. })
    }

    pub(super) fn is_extension(&self) -> bool {
        matches!(self.command(), Command::Extend { .. })
    }

    /// Returns true for an acquire of free locks, which is neither an adoption nor a token confirmation.
    pub(super) fn is_plain_acquire(&self) -> bool {
        matches!(self.command(), Command::Acquire { .. })
    }

    /// Returns true for a command that acquires or adopts locks, or confirms their fencing token.
    pub(super) fn is_acquire(&self) -> bool {
        self.kind() == Some(CommandKind::Acquire)
    }

    pub(super) fn kind(&self) -> Option<CommandKind> {
        match *self.command() {
            Command::Acquire { .. } | Command::Adopt { .. } | Command::ConfirmToken { .. } => {
                Some(CommandKind::Acquire)
            }
            Command::Extend { .. } => Some(CommandKind::Extend),
            Command::Release { .. } => Some(CommandKind::Release),
            Command::Repair { .. } | Command::Read | Command::ForceDelete => None,
        }
    }

    /// Returns true if the command's pipeline must end with `TIME`, because the command can grant a lock or an
    /// extension.
    pub(super) fn needs_time(&self) -> bool {
        self.is_acquire()
            || matches!(self.command(), Command::Extend { .. } | Command::Repair { .. })
    }

    /// Returns true for a release that must be sent alone: its pipeline contains no other command, and no other
    /// pipeline is in flight on the connection.
    pub(super) fn is_isolated(&self) -> bool {
        self.isolated().is_some()
    }

    /// Returns the number of consecutive connections that ended without a reply to an isolated release. Returns `None`
    /// for other commands.
    pub(super) fn isolated(&self) -> Option<u8> {
        let is_isolated = self.is_release() && self.unanswered >= ISOLATED_AFTER;
        is_isolated.then_some(self.unanswered)
    }

    pub(super) fn shares_key(&self, other: &Self) -> bool {
        self.claim().keys().iter().any(|key| other.claim().keys().position(key).is_some())
    }

    /// Returns true for a release that was written once, so that no earlier write can have deleted the keys.
    pub(super) fn is_first_release(&self) -> bool {
        self.is_release() && self.written.is_some_and(|written| written.is_first)
    }

    /// Returns true if the command must not be written to `node`: its claim was withdrawn, its time limit has passed,
    /// or the node has no key to release.
    pub(super) fn is_cancelled(&self, node: NodeId, now: Time) -> bool {
        match *self.command() {
            Command::Extend { until, .. } | Command::Repair { until } => {
                self.claim().is_withdrawn() || now >= until
            }
            Command::Release { .. } => {
                !self.claim().is_written(node) || self.claim().is_denied(node)
            }
            _ => self.claim().is_withdrawn(),
        }
    }

    /// Returns the assumed reply of `node` to a [cancelled](Self::is_cancelled) release, which is never written.
    /// Returns `None` for other commands.
    pub(super) fn cancelled_reply(&self, node: NodeId) -> Option<Answer> {
        self.is_release().then(|| {
            if self.claim().is_denied(node) {
                Answer::Denied(Conflict::default())
            } else {
                Answer::Missing { number: None }
            }
        })
    }

    pub(super) fn pending_work(&self, node: NodeId) -> PendingWork<Value> {
        match *self.command() {
            Command::Release { .. } => PendingWork::Release(PendingRelease {
                expiry: self.claim().expiry(),
                may_run_late: self.claim().is_in_doubt(node),
                reached: self.reached,
                isolated: self.isolated(),
            }),
            Command::Extend { until, .. } => PendingWork::Extension {
                claim: self.claim().value().clone(),
                until,
                is_withdrawn: self.claim().is_withdrawn(),
            },
            _ => PendingWork::None,
        }
    }

    /// Returns the time until which the node must keep the keys if it grants the command. Returns `None` if the command
    /// was not written, or does not set the TTL of all keys.
    pub(super) fn kept_until(&self, drift: Drift) -> Option<Time> {
        let written = self.written?;
        Some(valid_until(written.at, written.ttl?, drift))
    }

    /// Returns true if a grant of this command frees keys and the client must notify its local waiters itself. Nodes do
    /// not push changes that the client's own connection makes. The following commands free keys without a push:
    ///
    /// - a release that was written again in another form, because commands written behind its first form ran before
    ///   it;
    /// - the release of a refused attempt for several keys, because the node may have granted some of them;
    /// - a command that a node grants after other nodes have refused the attempt, because its release follows;
    /// - a forced release.
    pub(super) fn frees_silently(&self) -> bool {
        match *self.command() {
            Command::Release { .. } => {
                self.has_fallen_back() || self.claim().is_refused() && self.claim().keys().len() > 1
            }
            Command::ForceDelete => true,
            _ => self.is_acquire() && self.claim().is_refused(),
        }
    }

    pub(super) fn write(
        &mut self,
        node: NodeId,
        now: Time,
        can: Capabilities,
        requests: &mut Requests,
    ) {
        let ttl = self.command().key_ttl(now);
        if let Some(ttl) = ttl {
            self.claim().handle_written(node, ttl, now);
        }
        if self.unanswered > 0 {
            self.reached.get_or_insert(now);
        }
        // A repair does not change the TTL of existing keys.
        let ttl = ttl.filter(|_| !matches!(self.command(), Command::Repair { .. }));
        let shape = self.shared.write(node, self.form, now, can, requests);
        let is_first = self.written.is_none();
        self.written = Some(Written { is_first, at: now, ttl, shape });
    }

    pub(super) fn reply_count(&self) -> usize {
        self.written.map_or(0, |written| written.shape.len())
    }

    /// Returns the native command of the last write if `replies` show that the server does not support or permit it.
    pub(super) fn refused_native(&self, replies: &[redis::Value]) -> Option<NativeCommand> {
        self.written?.shape.refused_native(replies)
    }

    /// Switches to another form if `replies` show that the command had no effect. Returns false if the command had an
    /// effect, or if it already has the other form.
    pub(super) fn fall_back(&mut self, replies: &[redis::Value]) -> bool {
        let other = self.written.and_then(|written| written.shape.other_form(replies));
        let Some(form) = other.filter(|form| *form != self.form) else { return false };
        self.form = form;
        self.unanswered = 0;
        if self.written.is_some_and(|written| written.is_first) {
            self.written = None;
        }
        true
    }

    pub(super) fn has_fallen_back(&self) -> bool {
        self.form != Form::Native
    }

    /// Parses the replies of `node`, and records in the claim whether the node can hold the claim's keys.
    pub(super) fn read(&self, node: NodeId, replies: &[redis::Value]) -> Answer {
        let Some(written) = self.written else {
            return Answer::Failed(NodeFailure::Unexpected(
                "reply to a command that was not sent".into(),
            ));
        };
        let answer = written.shape.read(replies, self.claim().value());
        if self.is_repeated_release()
            && let Answer::Missing { number } = answer
        {
            return Answer::Granted(Grant { number, ..Grant::default() });
        }
        match (self.command(), &answer) {
            (Command::Acquire { .. }, Answer::Denied(_)) => self.claim().handle_denied(node),
            (
                Command::Adopt { .. },
                Answer::Denied(_)
                | Answer::Missing { .. }
                | Answer::Failed(NodeFailure::Refused { .. }),
            ) => self.claim().handle_declined(node),
            _ => {}
        }
        answer
    }

    pub(super) fn handle_reply(&mut self, now: Time, has_failed: bool) {
        self.unanswered = 0;
        if has_failed {
            self.reached.get_or_insert(now);
        }
    }

    /// Records that the connection ended without a reply. The command can still run on `node`.
    pub(super) fn handle_unanswered(&mut self, node: NodeId) {
        self.unanswered = self.unanswered.saturating_add(1);
        self.handle_in_doubt(node);
    }

    /// Records in the claim that `node` can still execute the command at any time. Releases are not recorded.
    pub(super) fn handle_in_doubt(&self, node: NodeId) {
        if !self.is_release() {
            self.claim().handle_in_doubt(node);
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Pipeline {
    pub(super) commands: Vec<NodeCommand>,
    pub(super) written_at: Time,
    pub(super) has_time: bool,
    /// Whether the pipeline is an isolated release. No other pipeline is written before the reply to an isolated
    /// release.
    pub(super) is_isolated: bool,
}
