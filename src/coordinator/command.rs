//! One command for one node, with the state that decides whether to resend it.

use super::claim::Claim;
use super::round_command::RoundCommand;
use super::slots::RoundId;
use crate::observe::event::CommandKind;
use crate::protocol::{Drift, NodeId, PendingRelease, PendingWork, Time, Ttl, valid_until};
use crate::wire::{
    Answer, Capabilities, Command, Conflict, Form, Grant, Keys, NativeCommand, NodeFailure,
    PeriodStep, ReplyShape, Requests, Value,
};
use std::sync::Arc;

/// The number of consecutive connections that must end without a reply to a release before the release is sent alone.
/// The release itself may cause the server to close the connections.
const ISOLATED_AFTER: u8 = 2;

#[derive(Debug)]
pub(super) struct NodeCommand {
    shared: Arc<RoundCommand>,
    /// The round in which this node's reply is a vote. `None` if the command belongs to no round, or after the node has
    /// voted. A node votes at most once per round (I1).
    round: Option<RoundId>,
    form: Form,
    /// The last write of the command. `None` if the command was never written, or if its only write had no effect.
    written: Option<Written>,
    unanswered: u8,
    /// When the node was first reachable after this command had failed: either when the node replied with an error, or
    /// when the client resent the command over a new connection.
    reached: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Written {
    /// Whether this is the first write that can have had an effect.
    is_first: bool,
    at: Time,
    /// The TTL that the node sets on all keys if it grants the command. `None` if the command does not set the TTL of
    /// every key.
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

    /// Takes the round in which the reply counts as a vote. Later calls return `None`, so the node votes at most once.
    pub(super) fn take_round(&mut self) -> Option<RoundId> {
        self.round.take()
    }

    pub(super) fn has_round(&self) -> bool {
        self.round.is_some()
    }

    /// Returns true if the reply still counts as a vote, and the command may be sent again on the next connection
    /// because a second execution has no further effect. An isolated release is sent again without a vote.
    pub(super) fn keeps_vote(&self) -> bool {
        let is_repeatable = self.is_release()
            || self.is_extension()
            || matches!(self.command(), Command::Read | Command::Observe);
        is_repeatable && self.has_round() && !self.is_isolated()
    }

    /// Returns true for a release that was sent more than once, if `node` had to keep the keys until the first copy. If
    /// the node then reports the keys as missing or as held by another client, an earlier copy of the release may have
    /// deleted them.
    fn may_have_released(&self, node: NodeId) -> bool {
        let was_repeated = self.written.is_some_and(|written| !written.is_first);
        self.is_release() && was_repeated && self.claim().was_kept_at_release(node)
    }

    pub(super) fn is_release(&self) -> bool {
        matches!(self.command(), Command::Release { .. } | Command::ReleaseAny)
    }

    pub(super) fn is_extension(&self) -> bool {
        matches!(self.command(), Command::Extend { .. })
    }

    /// Returns true for a command that acquires free locks. Adoptions and token confirmations are excluded.
    pub(super) fn is_plain_acquire(&self) -> bool {
        matches!(self.command(), Command::Acquire { .. })
    }

    /// Returns true for a command of an acquire: one that acquires or adopts locks, or that confirms a fencing token.
    pub(super) fn is_acquire(&self) -> bool {
        self.kind() == Some(CommandKind::Acquire)
    }

    pub(super) fn kind(&self) -> Option<CommandKind> {
        match *self.command() {
            Command::Acquire { .. } | Command::Adopt { .. } | Command::ConfirmToken { .. } => {
                Some(CommandKind::Acquire)
            }
            Command::Extend { .. } => Some(CommandKind::Extend),
            Command::Release { .. } | Command::ReleaseAny => Some(CommandKind::Release),
            Command::Repair { .. }
            | Command::Read
            | Command::Observe
            | Command::ForceDelete
            | Command::Period(_) => None,
        }
    }

    /// Returns true for a request that asks whether a period is done. The grant of a node that may have lost the job's
    /// counter must not count.
    pub(super) fn asks_for_period(&self) -> bool {
        let Command::Period(update) = self.command() else { return false };
        matches!(update.step, PeriodStep::Check | PeriodStep::Begin)
    }

    /// Returns true if the pipeline with this command must also contain `TIME`. The reading of the node's clock decides
    /// whether, and from when, a granted acquire or extension counts.
    pub(super) fn needs_time(&self) -> bool {
        self.is_acquire()
            || matches!(self.command(), Command::Extend { .. } | Command::Repair { .. })
    }

    /// Returns true for a release that must be sent alone: in its own pipeline, and while no other pipeline is in
    /// flight on the connection.
    pub(super) fn is_isolated(&self) -> bool {
        self.isolated_unanswered().is_some()
    }

    /// Returns the number of consecutive connections that ended without a reply to this isolated release. Returns
    /// `None` for all other commands.
    pub(super) fn isolated_unanswered(&self) -> Option<u8> {
        let is_isolated = self.is_release() && self.unanswered >= ISOLATED_AFTER;
        is_isolated.then_some(self.unanswered)
    }

    pub(super) fn shares_key(&self, other: &Self) -> bool {
        self.claim().keys().iter().any(|key| other.claim().keys().position(key).is_some())
    }

    /// Returns true for a release of which only one copy can have had an effect. If the node then reports the keys as
    /// missing, it had lost them before the release.
    pub(super) fn is_first_release(&self) -> bool {
        self.is_release() && self.written.is_some_and(|written| written.is_first)
    }

    /// Returns true if the command must not be written to `node`. This is the case if the attempt or lease no longer
    /// needs the command, if the command's time limit has passed, or if the node holds no key to release.
    pub(super) fn is_cancelled(&self, node: NodeId, now: Time) -> bool {
        match *self.command() {
            Command::Extend { until, .. } | Command::Repair { until } => {
                self.claim().is_withdrawn() || now >= until
            }
            Command::Release { .. } | Command::ReleaseAny => {
                !self.claim().is_written(node) || self.claim().is_denied(node)
            }
            _ => self.claim().is_withdrawn(),
        }
    }

    /// Returns the reply to assume for a [cancelled](Self::is_cancelled) release, which is not sent. Returns `None` for
    /// other commands.
    pub(super) fn cancelled_reply(&self, node: NodeId) -> Option<Answer> {
        self.is_release().then(|| {
            if self.claim().is_denied(node) {
                Answer::Denied(Conflict::default())
            } else {
                Answer::Missing { counter: None }
            }
        })
    }

    pub(super) fn pending_work(&self, node: NodeId) -> PendingWork<Value> {
        match *self.command() {
            Command::Release { .. } | Command::ReleaseAny => PendingWork::Release(PendingRelease {
                expiry: self.claim().expiry(),
                may_run_late: self.claim().is_in_doubt(node),
                reached: self.reached,
                isolated_unanswered: self.isolated_unanswered(),
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
    /// was not written, or does not set the TTL of every key.
    pub(super) fn kept_until(&self, drift: Drift) -> Option<Time> {
        let written = self.written?;
        Some(valid_until(written.at, written.ttl?, drift))
    }

    /// Returns the keys that `answer` makes free without a push. The client's own waiting acquires must then be
    /// notified. Normally, the node pushes the deletion of a key to the client. The node sends no push for a change that
    /// the client's own connection makes, so this method returns the keys of:
    ///
    /// - a release that was resent as a script, because an acquire that was written after the first copy may run before
    ///   the second copy and be refused;
    /// - the release of a refused attempt for several keys, because the node may have granted some of them;
    /// - the release of the keys that an acquire of any one of several keys does not keep;
    /// - an acquire that the node grants after other nodes have refused the attempt, because its release follows;
    /// - a forced release;
    /// - the release of the last reader;
    /// - the release of a reservation, because readers wait for the end of a writer's intent.
    ///
    /// For an acquire of any one of several keys, returns only the key that the node has set or deleted.
    pub(super) fn silently_freed(&self, answer: &Answer) -> Option<Keys> {
        let Answer::Granted(grant) = answer else { return None };
        let claim = self.claim();
        let is_silent = match *self.command() {
            Command::Release { .. } if claim.is_reader() => !grant.leaves_readers,
            Command::Release { .. } if claim.is_reservation() => true,
            Command::Release { .. } => {
                self.has_fallen_back() || claim.is_refused() && claim.keys().len() > 1
            }
            Command::ReleaseAny | Command::ForceDelete => true,
            _ => self.is_acquire() && claim.is_refused(),
        };
        match claim.is_any() {
            _ if !is_silent => None,
            true => claim.keys().get(grant.key_index).cloned().map(Keys::one),
            false => Some(claim.keys().clone()),
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
        if let Some((reservation, ttl)) = self.reservation().zip(ttl) {
            reservation.handle_written(node, Ttl::covering(2 * ttl.as_duration()), now);
        }
        // Another engine of this client may have sent the release before.
        let is_first =
            self.written.is_none() && !(self.is_release() && self.claim().is_released(node));
        if self.is_release() && is_first {
            self.claim().handle_release(node, now);
        }
        if self.written.is_some() {
            self.reached.get_or_insert(now);
        }
        // A repair does not change the TTL of existing keys.
        let ttl = ttl.filter(|_| !matches!(self.command(), Command::Repair { .. }));
        let shape = self.shared.write(node, self.form, now, can, requests);
        self.written = Some(Written { is_first, at: now, ttl, shape });
    }

    pub(super) fn reply_count(&self) -> usize {
        self.written.map_or(0, |written| written.shape.len())
    }

    /// Returns the native Redis command of the last write if `replies` show that the server does not support or permit
    /// this command. Returns `None` if the server accepted the command, or if the last write was a script.
    pub(super) fn refused_native(&self, replies: &[redis::Value]) -> Option<NativeCommand> {
        self.written?.shape.refused_native(replies)
    }

    /// If `replies` show that the command had no effect, switches to another encoding, such as a script. Returns true
    /// if the command must be resent. Returns false if `replies` are final.
    pub(super) fn fall_back(&mut self, node: NodeId, replies: &[redis::Value]) -> bool {
        let other = self.written.and_then(|written| written.shape.other_form(replies));
        let Some(form) = other.filter(|form| *form != self.form) else { return false };
        self.form = form;
        self.unanswered = 0;
        if self.written.is_some_and(|written| written.is_first) {
            self.written = None;
            self.claim().handle_release_void(node);
        }
        true
    }

    pub(super) fn has_fallen_back(&self) -> bool {
        self.form != Form::Native
    }

    /// Parses the replies of `node` to the last write. If the node refused to set the keys, also records the refusal in
    /// the [`Claim`].
    pub(super) fn read(&self, node: NodeId, replies: &[redis::Value]) -> Answer {
        let Some(written) = self.written else {
            return Answer::Failed(NodeFailure::Unexpected(
                "reply to a command that was not sent".into(),
            ));
        };
        let answer = written.shape.read(replies, self.claim().value());
        if matches!(&answer, Answer::Granted(grant) if grant.key_index >= self.claim().keys().len())
        {
            return Answer::Failed(NodeFailure::Unexpected("index of an unknown key".into()));
        }
        if self.may_have_released(node) {
            match answer {
                Answer::Missing { counter } => {
                    return Answer::Granted(Grant { counter, ..Grant::default() });
                }
                Answer::Denied(_) => return Answer::Granted(Grant::default()),
                _ => {}
            }
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

    /// Records that the server or the network ended the connection without a reply.
    pub(super) fn handle_unanswered(&mut self) {
        self.unanswered = self.unanswered.saturating_add(1);
    }

    /// Records in the [`Claim`] that `node` may still execute the unanswered command and set its keys. Has no effect
    /// for a release, which sets no key.
    pub(super) fn handle_in_doubt(&self, node: NodeId) {
        if !self.is_release() {
            self.claim().handle_in_doubt(node);
        }
        if let Some(reservation) = self.reservation() {
            reservation.handle_in_doubt(node);
        }
    }

    /// Returns the reservation that a node stores if it refuses this command.
    fn reservation(&self) -> Option<&Claim> {
        self.claim().reservation().filter(|_| self.is_plain_acquire()).map(|it| &**it)
    }
}

#[derive(Debug, Default)]
pub(super) struct Pipeline {
    pub(super) commands: Vec<NodeCommand>,
    pub(super) written_at: Time,
    pub(super) has_time: bool,
    /// Whether the pipeline contains only an isolated release. The client writes no other pipeline until the server
    /// replies.
    pub(super) is_isolated: bool,
}
