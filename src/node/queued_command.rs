//! A command on its way to a node, and back.

use super::ballot::Ballot;
use super::claim::Claim;
use crate::protocol::{NodeId, Promise, Time, Ttl};
use crate::wire::{Answer, Command, CoolDown, Form, NodeFailure, ReplyShape, Value, Wants};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One command for one node, and the vote that its answer is.
pub(crate) struct QueuedCommand {
    claim: Arc<Claim>,
    command: Command,
    /// The vote, while it is still to be cast.
    ballot: Option<Ballot>,
    form: Form,
    pending: Option<PendingRelease>,
    /// True if the node refused it, and will go on to until somebody sees to that.
    is_refused: bool,
    stage: Stage,
}

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
    /// What the node promises if it grants this.
    promise: Option<Promise>,
    replies: ReplyShape,
}

/// A release that has not been delivered yet, counted while it exists.
struct PendingRelease(Arc<AtomicUsize>);

impl Drop for PendingRelease {
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
        Self::new(claim, Command::Raise { token }, Some(ballot))
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
        Self::new(claim, Command::Look, Some(ballot))
    }

    /// Deletes what was read, once: it is not kept for a node that is away.
    pub(crate) fn evict(claim: Arc<Claim>, ballot: Ballot) -> Self {
        Self::new(claim, Command::ForceDelete, Some(ballot))
    }

    fn new(claim: Arc<Claim>, command: Command, ballot: Option<Ballot>) -> Self {
        let (form, pending, is_refused) = (Form::Hash, None, false);
        Self { claim, command, ballot, form, pending, is_refused, stage: Stage::Waiting }
    }

    /// Counts this in `pending` until it is done, if it is a release.
    pub(super) fn count_in(&mut self, pending: &Arc<AtomicUsize>) {
        if self.is_release() && self.pending.is_none() {
            pending.fetch_add(1, Ordering::Release);
            self.pending = Some(PendingRelease(pending.clone()));
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
            Command::Acquire { .. } | Command::Adopt { .. } | Command::Raise { .. }
        )
    }

    /// True if the node is asked to grant something: a lock, a token, more time.
    pub(super) fn is_to_grant(&self) -> bool {
        self.is_acquire() || self.is_upkeep()
    }

    /// Notes whether the node has just refused this for good.
    pub(super) fn note_refusal(&mut self, is_refused: bool) {
        self.is_refused = is_refused;
    }

    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
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
            Command::Release { .. } => self.claim.is_in_doubt(node) || now < self.claim.expiry(),
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

    /// For how long the node keeps the keys if it grants what was written.
    pub(super) fn promise(&self) -> Option<Promise> {
        self.written()?.promise
    }

    /// The same, if it asks for a lock that is free.
    pub(super) fn first_promise(&self) -> Option<Promise> {
        self.promise().filter(|_| matches!(self.command, Command::Acquire { .. }))
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
            Command::Release { .. } => !self.claim.is_written(node),
            _ => self.claim.is_withdrawn(),
        }
    }

    /// Answers what [is void](Self::is_void), without asking the node.
    pub(super) fn answer_void(mut self) {
        if self.is_release() {
            self.answer(Answer::Missing { number: None });
        } else if let Some(ballot) = self.ballot.take() {
            // Nobody waits for it any more.
            ballot.discard();
        }
    }

    /// Notes on the claim that this was written to `node`, and may run there at any time.
    pub(super) fn note_in_doubt(&self, node: NodeId) {
        if !self.is_release() {
            self.claim.note_in_doubt(node);
        }
    }

    /// Sends the source of the script next time, not its hash. False if that was done already.
    pub(super) fn fall_back_to_source(&mut self) -> bool {
        std::mem::replace(&mut self.form, Form::Source) == Form::Hash
    }

    /// Casts the vote, if it is still to be cast.
    pub(super) fn answer(&mut self, answer: Answer) {
        if let Some(ballot) = self.ballot.take() {
            ballot.cast(answer);
        }
    }

    pub(super) fn fail(&mut self, failure: NodeFailure) {
        self.answer(Answer::Failed(failure));
    }

    /// How many replies it has, as it was written.
    pub(super) fn replies(&self) -> usize {
        self.written().map_or(0, |written| written.replies.len())
    }

    /// Adds this to `pipeline`, and notes on the claim that it is being written to `node`. `tracks` says
    /// whether the connection can be told when keys change. False if this must not be written any more.
    pub(super) fn write(
        &mut self,
        node: NodeId,
        now: Time,
        tracks: bool,
        pipeline: &mut redis::Pipeline,
    ) -> bool {
        let ttl = self.command.lasting(now);
        if ttl.is_some_and(|ttl| !self.claim.note_written(node, ttl, now)) {
            return false;
        }
        // A repair leaves keys of a set as they are that were not lost.
        let is_whole = !matches!(self.command, Command::Repair { .. });
        let promise = ttl.filter(|_| is_whole).map(|ttl| Promise { written: now, ttl });
        let is_first = !self.was_written();
        let replies = self.command.write(self.claim.subject(), self.form, now, tracks, pipeline);
        self.stage = Stage::Written(Written { is_first, promise, replies });
        true
    }

    /// True if the node does not know the script that this asked it to run.
    pub(super) fn is_unknown(&self, replies: &[redis::Value]) -> bool {
        self.written().is_some_and(|written| written.replies.is_unknown(replies))
    }

    /// What `replies` say; nothing, if it was never written.
    pub(super) fn read(&self, replies: &[redis::Value]) -> Option<Answer> {
        let secret = self.claim.value().secret();
        self.written().map(|written| written.replies.read(replies, secret))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Keys;
    use std::time::Duration;

    const NOW: Time = Time::from_nanos(5_000_000_000);

    fn node() -> NodeId {
        NodeId::new(0)
    }

    fn claim() -> Arc<Claim> {
        Arc::new(Claim::new(Keys::one(b"k".as_slice().into()), Value::of(b"mine"), 1))
    }

    fn write(command: &mut QueuedCommand, now: Time) -> usize {
        let mut pipeline = redis::Pipeline::new();
        assert!(command.write(node(), now, true, &mut pipeline));
        pipeline.len()
    }

    #[test]
    fn what_was_never_written_promises_nothing_and_has_no_replies() {
        let command = QueuedCommand::repair(claim(), NOW.after(Duration::from_secs(9)));
        assert!(!command.was_written());
        assert_eq!((command.replies(), command.promise()), (0, None));
        assert_eq!(command.read(&[redis::Value::Okay]), None);
        assert!(!command.is_unknown(&[]));
    }

    #[test]
    fn what_was_written_promises_from_when_it_was_written_last() {
        let (claim, later) = (claim(), NOW.after(Duration::from_secs(4)));
        let until = NOW.after(Duration::from_secs(9));
        let sink = Arc::new(Ignore);
        let mut command = QueuedCommand::extend(claim, until, true, Ballot::new(sink, node()));
        for (now, left) in [(NOW, 9), (later, 5)] {
            assert_eq!(write(&mut command, now), command.replies());
            let promise = command.promise().expect("it is to keep the keys");
            assert_eq!(promise.written, now);
            assert_eq!(promise.ttl.as_duration(), Duration::from_secs(left));
        }
        assert_eq!(command.replies(), 3, "the script, and to be told of changes");
        assert_eq!(command.first_promise(), None, "the lock is ours already");
    }

    #[test]
    fn a_release_is_the_first_until_it_is_written_again() {
        let mut release = QueuedCommand::release(claim(), None);
        assert!(!release.is_first_release(), "not written");
        write(&mut release, NOW);
        assert!(release.is_first_release() && release.was_written());
        write(&mut release, NOW);
        assert!(!release.is_first_release() && release.was_written());
        assert_eq!(release.promise(), None);
    }

    #[test]
    fn a_repair_promises_nothing_and_is_not_written_once_its_claim_is_withdrawn() {
        let until = NOW.after(Duration::from_secs(9));
        let mut repair = QueuedCommand::repair(claim(), until);
        write(&mut repair, NOW);
        assert_eq!((repair.promise(), repair.is_first_release()), (None, false));
        let withdrawn = claim();
        withdrawn.withdraw();
        let mut repair = QueuedCommand::repair(withdrawn, until);
        let mut pipeline = redis::Pipeline::new();
        assert!(!repair.write(node(), NOW, true, &mut pipeline));
        assert!(pipeline.is_empty() && !repair.was_written());
    }

    #[test]
    fn a_script_that_is_not_known_is_sent_with_its_source_once() {
        let mut release = QueuedCommand::release(claim(), None);
        write(&mut release, NOW);
        let unknown = redis::parse_redis_value(b"-NOSCRIPT no\r\n").expect("an error reply");
        assert!(release.is_unknown(&[unknown]) && release.fall_back_to_source());
        let mut pipeline = redis::Pipeline::new();
        assert!(release.write(node(), NOW, true, &mut pipeline));
        let packed = String::from_utf8(pipeline.get_packed_pipeline()).expect("text");
        assert!(packed.contains("\r\nEVAL\r\n"), "{packed}");
        assert!(!release.fall_back_to_source(), "that was done");
    }

    struct Ignore;

    impl super::super::ballot::VoteSink for Ignore {
        fn handle_answer(&self, _: NodeId, _: Answer) {}
    }
}
