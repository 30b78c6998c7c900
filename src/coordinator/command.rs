//! A command for one node, from its submission until the node has executed it or it is of no more use.

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

/// Number of connections in a row that ended without a reply to a release. From then on the release is sent alone,
/// because it may be the reason why they were closed.
const ISOLATED_AFTER: u8 = 2;

#[derive(Debug)]
pub(super) struct NodeCommand {
    shared: Arc<RoundCommand>,
    /// The round in which the reply is the node's vote, until the node has voted (I1).
    round: Option<RoundId>,
    form: Form,
    /// How it was written last. `None` if it was never written, or if what was written had no effect.
    written: Option<Written>,
    /// Number of connections in a row that ended without a reply to it.
    unanswered: u8,
    /// When the node was first reachable with this command pending: it replied with an error, or another connection was
    /// set up.
    reached: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Written {
    /// False if it had been written before.
    is_first: bool,
    at: Time,
    /// TTL that all keys have if the node grants the command.
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

    /// The round in which its reply is the node's vote. `None` after the first call.
    pub(super) fn take_round(&mut self) -> Option<RoundId> {
        self.round.take()
    }

    pub(super) fn has_round(&self) -> bool {
        self.round.is_some()
    }

    /// True for a release that was written before and has not voted: the keys are missing because it was executed then.
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

    /// True for an acquire of free locks: no adoption, and no confirmation of a token.
    pub(super) fn is_plain_acquire(&self) -> bool {
        matches!(self.command(), Command::Acquire { .. })
    }

    /// True for a command that acquires locks or commits their fencing token.
    pub(super) fn is_acquire(&self) -> bool {
        self.kind() == Some(CommandKind::Acquire)
    }

    /// The kind in events. `None` if the command emits no event.
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

    /// True if the pipeline of this command ends with `TIME`: the command can grant something.
    pub(super) fn needs_time(&self) -> bool {
        self.is_acquire()
            || matches!(self.command(), Command::Extend { .. } | Command::Repair { .. })
    }

    /// True for a release that shares neither a pipeline nor the connection with other commands.
    pub(super) fn is_isolated(&self) -> bool {
        self.isolated().is_some()
    }

    /// For an isolated release, the number of connections in a row that ended without a reply to it.
    pub(super) fn isolated(&self) -> Option<u8> {
        let is_isolated = self.is_release() && self.unanswered >= ISOLATED_AFTER;
        is_isolated.then_some(self.unanswered)
    }

    /// True if the two commands have a key in common.
    pub(super) fn shares_key(&self, other: &Self) -> bool {
        self.claim().keys().iter().any(|key| other.claim().keys().position(key).is_some())
    }

    /// True for a release that was written once: no earlier release can have deleted the keys.
    pub(super) fn is_first_release(&self) -> bool {
        self.is_release() && self.written.is_some_and(|written| written.is_first)
    }

    /// True if it must not be written to `node`: it belongs to a claim that was given up, or there is no key to release.
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

    /// The reply of `node` to a [cancelled](Self::is_cancelled) release, which is not sent. `None` for other commands.
    pub(super) fn cancelled_reply(&self, node: NodeId) -> Option<Answer> {
        self.is_release().then(|| {
            if self.claim().is_denied(node) {
                Answer::Denied(Conflict::default())
            } else {
                Answer::Missing { number: None }
            }
        })
    }

    /// The work that is left on `node` while it has not executed the command.
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

    /// Time until which the node keeps the keys at least, if it grants the command. `None` if the command was not
    /// written, or sets no TTL for all keys.
    pub(super) fn kept_until(&self, drift: Drift) -> Option<Time> {
        let written = self.written?;
        Some(valid_until(written.at, written.ttl?, drift))
    }

    /// True if a grant of this command frees keys without a notification of local waiters: nodes push no changes
    /// of the client's own connection:
    ///
    /// - a release that is written again in another form: commands that were written behind its first form ran before it;
    /// - the release of a refused attempt for several keys, of which the node had granted some;
    /// - a grant after other nodes had refused the attempt: its release follows;
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

    /// Appends the command to `requests`.
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

    /// Number of replies to it.
    pub(super) fn reply_count(&self) -> usize {
        self.written.map_or(0, |written| written.shape.len())
    }

    /// The native command that it was written as, if the server does not support or permit it.
    pub(super) fn refused_native(&self, replies: &[redis::Value]) -> Option<NativeCommand> {
        self.written?.shape.refused_native(replies)
    }

    /// Changes to another form if `replies` show that the command had no effect. Returns false if they do not, or if
    /// that form was tried.
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

    /// True if it has changed to another form.
    pub(super) fn has_fallen_back(&self) -> bool {
        self.form != Form::Native
    }

    /// Parses the replies of `node`, and records on the claim whether the node can hold its keys.
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

    /// The node replied at `now`, with an error if `has_failed`.
    pub(super) fn handle_reply(&mut self, now: Time, has_failed: bool) {
        self.unanswered = 0;
        if has_failed {
            self.reached.get_or_insert(now);
        }
    }

    /// The connection ended without a reply. The command can still run on `node`.
    pub(super) fn handle_unanswered(&mut self, node: NodeId) {
        self.unanswered = self.unanswered.saturating_add(1);
        self.handle_in_doubt(node);
    }

    /// `node` has stalled before its reply. The command can run there at any time.
    pub(super) fn handle_in_doubt(&self, node: NodeId) {
        if !self.is_release() {
            self.claim().handle_in_doubt(node);
        }
    }
}

/// Commands that were sent together.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    pub(super) commands: Vec<NodeCommand>,
    pub(super) written_at: Time,
    /// True if `TIME` follows the commands.
    pub(super) has_time: bool,
    /// True for an isolated release: no other pipeline is written before its reply.
    pub(super) is_isolated: bool,
}
