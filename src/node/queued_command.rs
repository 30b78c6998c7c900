//! A command on its way to a node, and back.

use super::ballot::Ballot;
use super::claim::Claim;
use crate::observe::event::CommandKind;
use crate::protocol::{Drift, NodeId, PendingRelease, Time, Ttl, valid_until};
use crate::wire::{
    Answer, Capabilities, Command, Conflict, CoolDown, Form, NodeFailure, ReplyShape, Requests,
    Value, Wants,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One command for one node, and the vote that its answer is.
pub(crate) struct QueuedCommand {
    claim: Arc<Claim>,
    command: Command,
    /// The vote, while it is still to be cast.
    ballot: Option<Ballot>,
    form: Form,
    pending: Option<PendingCount>,
    /// On how many connections in a row it was written and not answered.
    unanswered: u8,
    /// When the node was first reachable with this unfinished: it answered with an error, or a later connection
    /// was set up after one that did not answer.
    reached: Option<Time>,
    stage: Stage,
}

/// Connections in a row without an answer to a release, after which it is sent alone: it may be the reason why they
/// were closed.
const ISOLATED_AFTER: u8 = 2;

/// How far a command has come.
#[derive(Clone, Copy)]
enum Stage {
    /// It was never written.
    Waiting,
    /// It was written, and may have run.
    Written(Written),
}

/// How a command was written last.
#[derive(Clone, Copy)]
struct Written {
    /// False if it had been written before.
    is_first: bool,
    at: Time,
    /// TTL that all keys have if the node grants this.
    ttl: Option<Ttl>,
    replies: ReplyShape,
}

/// A release that has not been delivered yet, counted while it exists.
struct PendingCount(Arc<AtomicUsize>);

impl Drop for PendingCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl QueuedCommand {
    pub(crate) fn acquire(claim: Arc<Claim>, ttl: Ttl, wants: Wants, ballot: Ballot) -> Self {
        Self::new(claim, Command::Acquire { ttl, wants }, Some(ballot))
    }

    /// Takes over the locks that `from` stands for.
    pub(crate) fn adopt(claim: Arc<Claim>, ttl: Ttl, from: Arc<Value>, ballot: Ballot) -> Self {
        Self::new(claim, Command::Adopt { ttl, from }, Some(ballot))
    }

    /// Raises the counters to `token`, while the keys are ours.
    pub(crate) fn raise(claim: Arc<Claim>, token: u64, ballot: Ballot) -> Self {
        Self::new(claim, Command::ConfirmToken { token }, Some(ballot))
    }

    pub(crate) fn extend(claim: Arc<Claim>, until: Time, watches: bool, ballot: Ballot) -> Self {
        Self::new(claim, Command::Extend { until, watches }, Some(ballot))
    }

    /// Nobody counts its vote, and it is not kept for a node that is away.
    pub(crate) fn repair(claim: Arc<Claim>, until: Time) -> Self {
        Self::new(claim, Command::Repair { until }, None)
    }

    pub(crate) fn release(claim: Arc<Claim>, ballot: Option<Ballot>) -> Self {
        Self::new(claim, Command::Release { cooling: None }, ballot)
    }

    /// A release that leaves `cooling` in the locks' place.
    pub(crate) fn cool_down(
        claim: Arc<Claim>,
        cooling: Arc<CoolDown>,
        ballot: Option<Ballot>,
    ) -> Self {
        Self::new(claim, Command::Release { cooling: Some(cooling) }, ballot)
    }

    /// Asks what stands at the claim's key.
    pub(crate) fn look(claim: Arc<Claim>, ballot: Ballot) -> Self {
        Self::new(claim, Command::Read, Some(ballot))
    }

    /// Deletes what was read, once: it is not kept for a node that is away.
    pub(crate) fn evict(claim: Arc<Claim>, ballot: Ballot) -> Self {
        Self::new(claim, Command::ForceDelete, Some(ballot))
    }

    fn new(claim: Arc<Claim>, command: Command, ballot: Option<Ballot>) -> Self {
        let (form, stage) = (Form::Native, Stage::Waiting);
        let (pending, unanswered, reached) = (None, 0, None);
        Self { claim, command, ballot, form, pending, unanswered, reached, stage }
    }

    /// Counts this in `pending` until it is done, if it is a release.
    pub(super) fn count_in(&mut self, pending: &Arc<AtomicUsize>) {
        if self.is_release() && self.pending.is_none() {
            pending.fetch_add(1, Ordering::Release);
            self.pending = Some(PendingCount(pending.clone()));
        }
    }

    pub(super) fn claim(&self) -> &Arc<Claim> {
        &self.claim
    }

    pub(super) fn is_release(&self) -> bool {
        matches!(self.command, Command::Release { .. })
    }

    /// True if this asks for locks that we have not got yet, or for their fencing token.
    pub(super) fn is_acquire(&self) -> bool {
        matches!(
            self.command,
            Command::Acquire { .. } | Command::Adopt { .. } | Command::ConfirmToken { .. }
        )
    }

    /// The kind in events. `None` if the command emits no event.
    pub(super) fn kind(&self) -> Option<CommandKind> {
        match self.command {
            Command::Acquire { .. } | Command::Adopt { .. } | Command::ConfirmToken { .. } => {
                Some(CommandKind::Acquire)
            }
            Command::Extend { .. } => Some(CommandKind::Extend),
            Command::Release { .. } => Some(CommandKind::Release),
            Command::Repair { .. } | Command::Read | Command::ForceDelete => None,
        }
    }

    /// True if the node is asked to grant something: a lock, a token, more time.
    pub(super) fn is_to_grant(&self) -> bool {
        self.is_acquire() || self.is_upkeep()
    }

    /// The connection that this was written to has ended without an answer.
    pub(super) fn note_unanswered(&mut self) {
        self.unanswered = self.unanswered.saturating_add(1);
    }

    /// The node has answered by `now`, if only by an error.
    pub(super) fn note_answered(&mut self, now: Time, has_failed: bool) {
        self.unanswered = 0;
        if has_failed {
            self.reached.get_or_insert(now);
        }
    }

    /// True for a release that shares neither a pipeline nor the connection with other commands.
    pub(super) fn is_isolated(&self) -> bool {
        self.is_release() && self.unanswered >= ISOLATED_AFTER
    }

    /// This release, as one that `node` has not confirmed.
    pub(super) fn pending_release(&self, node: NodeId) -> PendingRelease {
        PendingRelease {
            expiry: self.claim.expiry(),
            may_run_late: self.claim.is_in_doubt(node),
            reached: self.reached,
            isolated: self.is_isolated().then_some(self.unanswered),
        }
    }

    /// True if it was written to a node, and may have run there.
    pub(super) fn was_written(&self) -> bool {
        self.written().is_some()
    }

    fn written(&self) -> Option<&Written> {
        match &self.stage {
            Stage::Waiting => None,
            Stage::Written(written) => Some(written),
        }
    }

    /// True for what keeps up a lease that is held.
    pub(super) fn is_upkeep(&self) -> bool {
        matches!(self.command, Command::Extend { .. } | Command::Repair { .. })
    }

    /// False if it makes no sense any more to keep this for `node`: the key must have expired, or the
    /// lease has ended. A release is of use while a command may still run late there.
    pub(super) fn is_of_use(&self, node: NodeId, now: Time) -> bool {
        match self.command {
            Command::Release { .. } => self.pending_release(node).is_useful(now, false),
            _ => !self.is_void(node, now),
        }
    }

    /// True for a release that any connection to `node` may carry: the node has answered all that could
    /// set the key, so nothing can be overtaken (I8).
    pub(super) fn can_be_released_by_others(&self, node: NodeId) -> bool {
        self.is_release() && self.claim.has_kept(node) && !self.claim.is_in_doubt(node)
    }

    /// True for a release that was written once: nothing of ours can have deleted the keys before.
    pub(super) fn is_first_release(&self) -> bool {
        self.is_release() && self.written().is_some_and(|written| written.is_first)
    }

    /// Time until which the node keeps the keys at least, if it grants this. `None` if it was never written, or sets no
    /// TTL for all keys.
    pub(super) fn kept_until(&self, drift: Drift) -> Option<Time> {
        let written = self.written()?;
        Some(valid_until(written.at, written.ttl?, drift))
    }

    /// True for an acquire of locks that are free: no adoption, no confirmation of a token.
    pub(super) fn is_plain_acquire(&self) -> bool {
        matches!(self.command, Command::Acquire { .. })
    }

    pub(super) fn is_extension(&self) -> bool {
        matches!(self.command, Command::Extend { .. })
    }

    /// Until when the keys are to stand, if this is an extension.
    pub(super) fn extends_until(&self) -> Option<Time> {
        match self.command {
            Command::Extend { until, .. } => Some(until),
            _ => None,
        }
    }

    /// True if it makes no sense any more to write this to `node`: what it belongs to has ended,
    /// or there is nothing to release.
    pub(super) fn is_void(&self, node: NodeId, now: Time) -> bool {
        match self.command {
            Command::Extend { until, .. } | Command::Repair { until } => {
                self.claim.is_withdrawn() || now >= until
            }
            Command::Release { .. } => !self.claim.is_written(node) || self.claim.is_refused(node),
            _ => self.claim.is_withdrawn(),
        }
    }

    /// Answers what [is void](Self::is_void) for `node`, without asking it.
    pub(super) fn answer_void(mut self, node: NodeId) {
        if self.is_release() {
            // As the node would say it: others hold the lock there, or there is no such key of ours.
            let is_refused = self.claim.is_refused(node);
            let denied = Answer::Denied(Conflict::default());
            self.answer(if is_refused { denied } else { Answer::Missing { number: None } });
        } else if let Some(ballot) = self.ballot.take() {
            // Nobody waits for it any more.
            ballot.discard();
        }
    }

    /// Takes what `node` has answered. Whoever was refused the locks has left nothing there, and owes no
    /// release. A lock that is taken over stands there, under its former holder's value.
    pub(super) fn note_answer(&self, node: NodeId, answer: &Answer) {
        match (&self.command, answer) {
            (Command::Acquire { .. }, Answer::Denied(_)) => self.claim.note_refused(node),
            (
                Command::Adopt { .. },
                Answer::Denied(_)
                | Answer::Missing { .. }
                | Answer::Failed(NodeFailure::Refused { .. }),
            ) => self.claim.note_declined(node),
            _ => {}
        }
    }

    /// Notes on the claim that this was written to `node`, and may run there at any time.
    pub(super) fn note_in_doubt(&self, node: NodeId) {
        if !self.is_release() {
            self.claim.note_in_doubt(node);
        }
    }

    /// Is written in another way next time, if `replies` say that it did nothing as it was. False if they do
    /// not, or that was tried.
    pub(super) fn fall_back(&mut self, replies: &[redis::Value]) -> bool {
        let Some(written) = self.written() else { return false };
        let Some(form) = written.replies.other_form(replies).filter(|form| *form != self.form)
        else {
            return false;
        };
        if written.is_first {
            self.stage = Stage::Waiting;
        }
        self.form = form;
        true
    }

    /// True if the node has freed the locks, or is about to, and nobody here knows. Either this is a release that was
    /// written again in another way: what was written behind it at first came before it. Or others refused some of
    /// several locks, and this is the release of the rest: those stood in the way of whoever wants one of them.
    /// Or this asked for locks that other nodes had refused before this one's answer was heard, and the release
    /// is on its way. Or somebody here has taken another's lock away.
    pub(super) fn is_late(&self) -> bool {
        match self.command {
            Command::Release { .. } => {
                self.form != Form::Native || self.claim.has_lost() && self.claim.keys().len() > 1
            }
            Command::ForceDelete => true,
            _ => self.is_acquire() && self.claim.has_lost(),
        }
    }

    /// True if the server has refused to delete by a command of its own.
    pub(super) fn is_native_refused(&self, replies: &[redis::Value]) -> bool {
        self.written().is_some_and(|written| written.replies.is_native_refused(replies))
    }

    /// Casts the vote, if it is still to be cast.
    pub(super) fn answer(&mut self, answer: Answer) {
        if let Some(ballot) = self.ballot.take() {
            ballot.cast(answer);
        }
    }

    /// The node has answered; that was read by `at`.
    pub(super) fn answer_at(&mut self, answer: Answer, at: Time) {
        if let Some(ballot) = self.ballot.take() {
            ballot.cast_at(answer, at);
        }
    }

    /// How many replies it has, as it was written.
    pub(super) fn replies(&self) -> usize {
        self.written().map_or(0, |written| written.replies.len())
    }

    /// Adds this to `requests`, and notes on the claim that it is being written to `node`, over a connection
    /// that `can` do so much. False if this must not be written any more.
    pub(super) fn write(
        &mut self,
        node: NodeId,
        now: Time,
        can: Capabilities,
        requests: &mut Requests,
    ) -> bool {
        let ttl = self.command.key_ttl(now);
        if ttl.is_some_and(|ttl| !self.claim.note_written(node, ttl, now)) {
            return false;
        }
        // A repair does not change the TTL of keys that were not lost.
        let is_repair = matches!(self.command, Command::Repair { .. });
        let ttl = ttl.filter(|_| !is_repair);
        let is_first = !self.was_written();
        if self.unanswered > 0 {
            self.reached.get_or_insert(now);
        }
        let replies = self.command.write(self.claim.subject(node), self.form, now, can, requests);
        self.stage = Stage::Written(Written { is_first, at: now, ttl, replies });
        true
    }

    /// What `replies` say; nothing, if it was never written.
    pub(super) fn read(&self, replies: &[redis::Value]) -> Option<Answer> {
        self.written().map(|written| written.replies.read(replies, self.claim.value()))
    }
}

#[cfg(test)]
#[path = "queued_command_tests.rs"]
mod tests;
