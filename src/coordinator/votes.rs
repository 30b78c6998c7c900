//! Counts the votes of one round, and keeps the nodes' replies for reports.

pub(super) use super::owner::{Cause, Owner};
use super::set_keys::{KeyGrant, SetKeys};
use crate::observe::{Holder, NodeReport, NodeVote, Report};
use crate::protocol::{NodeId, NodeSet, Outcome, Round, Time, Vote};
use crate::wire::{Answer, Conflict, Grant, NodeFailure, RemainingTtl, Value};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

/// If a round is closed later than planned by more than this time, the process is assumed to have been paused.
const LATE: Duration = Duration::from_millis(5);

/// How much longer a round stays open after a pause, so that the client reads replies that arrived during the pause.
const PROLONGED_BY: Duration = Duration::from_millis(10);

#[derive(Clone, Debug)]
pub(super) struct VoteCounter {
    pub(super) owner: Owner,
    /// When the round is closed if it is still undecided.
    pub(super) close_at: Time,
    t1: Time,
    round: Round,
    replies: Box<[Option<Reply>]>,
    was_prolonged: bool,
    /// Time from the start of the round to its close, if the round was closed before the votes decided it.
    closed_after: Option<Duration>,
    unconnected: NodeSet,
    /// Connected nodes that have not voted because this client was slow: it sent the command too late or not at all, or
    /// many attempts were in progress.
    unsent_to: NodeSet,
    /// Whether the client may have read replies late, because many attempts were in progress.
    is_crowded: bool,
    /// Nodes to which the command was not written, because the round had already been decided. These nodes hold no key
    /// of this attempt.
    not_asked: NodeSet,
    /// For an acquire of one of several keys: the key that each granting node has set.
    set_keys: Option<Box<SetKeys>>,
}

/// A node's reply. Grants are stored without a box to save memory, because each lease keeps the replies to its acquire.
#[derive(Clone, Debug)]
struct Reply {
    /// When the reply was read, in nanoseconds. `NonZeroU64` lets an `Option<Reply>` use no extra space.
    at: NonZeroU64,
    /// `None` for a grant that counts immediately.
    content: Option<Box<Content>>,
}

#[derive(Clone, Debug)]
enum Content {
    /// A grant that counts only from this time on, because the node's clock has stepped forward (I15).
    Deferred(Time),
    Other(Answer),
}

impl VoteCounter {
    /// `t1` must be read from the clock before the first command of the round is sent.
    pub(super) fn new(owner: Owner, round: Round, t1: Time, close_at: Time) -> Self {
        Self {
            owner,
            close_at,
            t1,
            replies: round.quorum().ids().map(|_| None).collect(),
            round,
            was_prolonged: false,
            closed_after: None,
            unconnected: NodeSet::default(),
            unsent_to: NodeSet::default(),
            is_crowded: false,
            not_asked: NodeSet::default(),
            set_keys: None,
        }
    }

    /// Makes the round count only the grants for one of the acquire's keys: the key that a quorum has set, or the key
    /// that most nodes have set once no key can reach a quorum. Nodes that have set another key count as denying.
    pub(super) fn of_one_key(self) -> Self {
        Self { set_keys: Some(Box::default()), ..self }
    }

    /// Returns the index of the key whose grants count.
    pub(super) fn chosen_key(&self) -> Option<usize> {
        self.set_keys.as_ref()?.chosen()
    }

    pub(super) fn t1(&self) -> Time {
        self.t1
    }

    /// Returns the time from the start of the round to the last reply, or to the close of an undecided round.
    pub(super) fn response_time(&self) -> Duration {
        let last = self.replies.iter().flatten().map(Reply::at).max();
        self.closed_after.unwrap_or(last.unwrap_or(self.t1).since(self.t1))
    }

    /// Returns true if the round must be closed at `now`. If the process was paused and nodes in `connected` have not
    /// voted, first keeps the round open for [`PROLONGED_BY`], at most once.
    pub(super) fn is_due(&mut self, connected: NodeSet, now: Time) -> bool {
        if now < self.close_at {
            return false;
        }
        let is_late = now.since(self.close_at) > LATE;
        let mut missing = connected.iter().filter(|node| self.replies[node.index()].is_none());
        if is_late && !self.was_prolonged && missing.next().is_some() {
            self.was_prolonged = true;
            self.close_at = now.after(PROLONGED_BY);
            return false;
        }
        true
    }

    pub(super) fn round(&self) -> &Round {
        &self.round
    }

    /// Records the reply of `node`, which was read at `now`, and counts its vote. Returns the outcome if this vote
    /// decided the round. Only the first reply of each node counts (I1).
    pub(super) fn handle_reply(
        &mut self,
        node: NodeId,
        answer: Answer,
        now: Time,
    ) -> Option<Outcome> {
        if self.replies[node.index()].is_some() {
            return None;
        }
        if let Some(number) = answer.counter().filter(|_| self.set_keys.is_none()) {
            self.round.note_counter(node, number);
        }
        match &answer {
            Answer::Granted(Grant { counts_from: Some(counts_from), .. }) => {
                self.round.note_counts_from(node, *counts_from);
            }
            Answer::Denied(Conflict { remaining: Some(remaining), is_watched, .. }) => {
                self.round.note_free_at(now.after(remaining.at_most()));
                if *is_watched {
                    self.round.note_watching(node);
                }
            }
            _ => {}
        }
        let outcome = match (&mut self.set_keys, &answer) {
            (Some(set_keys), Answer::Granted(Grant { key_index, counter, .. })) => {
                set_keys.handle_grant(KeyGrant { node, key: *key_index, counter: *counter });
                None
            }
            _ => self.round.handle_vote(node, answer.vote(), now),
        };
        self.replies[node.index()] = Some(Reply::new(answer, now));
        let counted = self.count_grants(false, now);
        outcome.or(counted)
    }

    /// Counts the grants of an acquire of any one of several keys, once it is known which key can reach a quorum.
    /// `is_over` is true if the round ends now.
    fn count_grants(&mut self, is_over: bool, now: Time) -> Option<Outcome> {
        let set_keys = self.set_keys.as_mut()?;
        let silent = self.replies.iter().filter(|reply| reply.is_none()).count();
        let votes = set_keys.take_votes(self.round.quorum(), silent, is_over);
        votes.into_iter().fold(None, |outcome, (KeyGrant { node, counter, .. }, vote)| {
            match counter.filter(|_| vote == Vote::Granted) {
                Some(number) => self.round.note_counter(node, number),
                // The key counts as free now, because the client releases it at once.
                None if vote == Vote::Denied => self.round.note_free_at(now),
                None => {}
            }
            outcome.or(self.round.handle_vote(node, vote, now))
        })
    }

    /// Counts deferred grants that count at `now`. Returns the outcome if the round is now decided.
    pub(super) fn handle_time(&mut self, now: Time) -> Option<Outcome> {
        self.round.handle_time(now)
    }

    pub(super) fn close(&mut self, connected: NodeSet, now: Time) -> Option<Outcome> {
        let counted = self.count_grants(true, now);
        let outcome = counted.or_else(|| self.round.handle_close(now));
        if outcome.is_some() {
            self.unconnected = self.round.quorum().ids().collect::<NodeSet>().without(connected);
            self.closed_after = Some(now.since(self.t1));
        }
        outcome
    }

    /// If the round was closed before all nodes had voted, records the missing nodes for which `is_held_up` returns
    /// true: this client sent the command too late or not at all, or many attempts were in progress. `is_crowded` is
    /// true in the latter case.
    pub(super) fn record_held_up(&mut self, is_crowded: bool, is_held_up: impl Fn(NodeId) -> bool) {
        self.is_crowded = is_crowded;
        if self.closed_after.is_some() {
            self.unsent_to = self.silent().filter(|node| is_held_up(*node)).collect();
        }
    }

    /// Records the nodes to which the command had not been written when the attempt was decided.
    pub(super) fn record_not_asked(&mut self, is_not_asked: impl Fn(NodeId) -> bool) {
        self.not_asked = self.silent().filter(|node| is_not_asked(*node)).collect();
    }

    /// Records that the command for `node` was cancelled after the decision. The node will not push a deletion.
    pub(super) fn handle_not_asked(&mut self, node: NodeId) {
        self.not_asked.insert(node);
    }

    /// Returns the nodes without a known conflict: those that granted the attempt, and those that were not asked.
    pub(super) fn without_conflict(&self) -> NodeSet {
        self.round.granted().union(self.not_asked)
    }

    pub(super) fn is_answered(&self) -> bool {
        self.replies.iter().all(Option::is_some)
    }

    pub(super) fn silent(&self) -> impl Iterator<Item = NodeId> {
        let votes = self.round.votes();
        self.round.quorum().ids().filter(move |node| !votes.contains(*node))
    }

    /// Returns true if the round failed because this overloaded client sent commands or read replies too late.
    pub(super) fn is_overloaded(&self) -> bool {
        let silent: NodeSet = self.silent().collect();
        let has_failed = |node: NodeId| match self.reply(node) {
            Some(reply) if reply.is_stalled() => !self.is_crowded,
            Some(reply) => reply.vote() == Vote::Failed || self.round.is_uncounted_grant(node),
            None => silent.contains(node) && !self.unsent_to.contains(node),
        };
        let failed = self.round.quorum().ids().filter(|node| has_failed(*node)).count();
        (self.is_crowded || self.unsent_to.len() > 0) && !self.round.quorum().blocked(failed)
    }

    pub(super) fn has_replied(&self, node: NodeId) -> bool {
        self.reply(node).is_some()
    }

    pub(super) fn has_granted(&self, node: NodeId) -> bool {
        self.reply(node).is_some_and(|reply| reply.vote() == Vote::Granted)
    }

    /// Returns when the conflicting key on `node` expires, if the node has reported that and will push the deletion.
    pub(super) fn pushed_expiry(&self, node: NodeId) -> Option<Time> {
        let reply = self.reply(node)?;
        match reply.conflict()? {
            Conflict { remaining: Some(remaining), is_watched: true, .. } => {
                Some(reply.at().after(remaining.at_most()))
            }
            _ => None,
        }
    }

    /// Returns the value of each conflicting key that a node reported.
    pub(super) fn holders(&self) -> impl Iterator<Item = &Value> {
        self.round.quorum().ids().filter_map(|node| self.holder(node))
    }

    /// Returns the value of the conflicting key that `node` reported.
    pub(super) fn holder(&self, node: NodeId) -> Option<&Value> {
        self.reply(node)?.conflict()?.value.as_ref()
    }

    /// Returns the earliest time at which a node counts again whose grant did not count in this round.
    pub(super) fn counts_again_at(&self) -> Option<Time> {
        let again = |node: NodeId| {
            let reply = self.reply(node)?;
            match reply.content.as_deref()? {
                Content::Deferred(from) => {
                    Some(*from).filter(|_| self.round.is_uncounted_grant(node))
                }
                Content::Other(Answer::Excluded(failure)) => {
                    Some(reply.at().after(failure.counts_in()?))
                }
                Content::Other(_) => None,
            }
        };
        self.round.quorum().ids().filter_map(again).min()
    }

    /// Returns the nodes that reported a conflicting key, each with the key's index in the acquire.
    pub(super) fn conflicts(&self) -> Vec<(NodeId, usize)> {
        let ids = self.round.quorum().ids();
        ids.filter_map(|node| Some((node, self.reply(node)?.conflict()?.key_index))).collect()
    }

    /// Returns the index of the conflicting key that most nodes reported. In a tie, the first node decides.
    pub(super) fn main_conflict(&self) -> Option<usize> {
        let places: Vec<_> = self.conflicts().into_iter().map(|(_, place)| place).collect();
        let count = |place: &usize| places.iter().filter(|other| *other == place).count();
        places.iter().rev().max_by_key(|place| count(place)).copied()
    }

    /// Returns the reply of `node`, unless the node has granted the command or has not replied.
    pub(super) fn refusal(&self, node: NodeId) -> Option<&Answer> {
        self.reply(node)?.other()
    }

    /// Returns the index of the key that `node` has set, in an acquire of any one of several keys.
    pub(super) fn set_key(&self, node: NodeId) -> Option<usize> {
        self.set_keys.as_ref()?.of(node)
    }

    /// Creates a report of all replies so far, including replies that arrived after the decision.
    pub(super) fn report(&self, names: &[Arc<str>], now: Time) -> Report {
        let report = |(name, node): (&Arc<str>, NodeId)| {
            let reply = self.reply(node);
            let vote = match (reply, self.closed_after) {
                // The node has granted another one of several keys.
                (Some(_), _) if self.has_granted(node) && self.round.has_denied(node) => {
                    NodeVote::Held
                }
                (Some(reply), _) => reply.node_vote(self.round.is_uncounted_grant(node)),
                (None, Some(after)) => NodeVote::Failed(self.missing_reply_cause(node, after)),
                (None, None) => NodeVote::Pending,
            };
            let latency = reply.map(|reply| reply.at().since(self.t1));
            NodeReport::new(name.clone(), vote, latency).with_holder(reply.and_then(Reply::holder))
        };
        let nodes = names.iter().zip(self.round.quorum().ids()).map(report).collect();
        // A key without an expiry never becomes free.
        let free_at = self.round.earliest_free().filter(|at| *at < Time::END);
        let retry_after = free_at.map(|at| at.since(now));
        Report::new(self.round.quorum().needed(), nodes).with_retry_after(retry_after)
    }

    /// Returns the reason why `node` had not replied when the round was closed. `after` is the time from the start of
    /// the round to its close.
    fn missing_reply_cause(&self, node: NodeId, after: Duration) -> NodeFailure {
        if self.unconnected.contains(node) {
            NodeFailure::Connecting(after)
        } else if self.unsent_to.contains(node) {
            NodeFailure::Queued(after)
        } else {
            NodeFailure::Timeout(after)
        }
    }

    fn reply(&self, node: NodeId) -> Option<&Reply> {
        self.replies[node.index()].as_ref()
    }
}

impl Reply {
    /// Drops the fencing counter and the key of a grant, which were already recorded.
    fn new(answer: Answer, now: Time) -> Self {
        let content = match answer {
            Answer::Granted(Grant { counts_from, .. }) => counts_from.map(Content::Deferred),
            other => Some(Content::Other(other)),
        };
        let at = NonZeroU64::new(now.as_nanos()).unwrap_or(NonZeroU64::MIN);
        Self { at, content: content.map(Box::new) }
    }

    fn at(&self) -> Time {
        Time::from_nanos(self.at.get())
    }

    fn other(&self) -> Option<&Answer> {
        if let Content::Other(answer) = self.content.as_deref()? { Some(answer) } else { None }
    }

    fn conflict(&self) -> Option<&Conflict> {
        if let Answer::Denied(conflict) = self.other()? { Some(conflict) } else { None }
    }

    fn vote(&self) -> Vote {
        self.other().map_or(Vote::Granted, Answer::vote)
    }

    fn is_stalled(&self) -> bool {
        matches!(self.other(), Some(Answer::Failed(NodeFailure::Stalled(_))))
    }

    fn holder(&self) -> Option<Holder> {
        let Conflict { value, remaining, .. } = self.conflict()?;
        Some(Holder::new(value.clone()?, remaining.and_then(RemainingTtl::duration)))
    }

    /// Returns the vote to show in a report. `is_uncounted_grant` is true for a deferred grant that did not yet count
    /// when the round ended.
    fn node_vote(&self, is_uncounted_grant: bool) -> NodeVote {
        match self.content.as_deref() {
            Some(Content::Deferred(from)) if is_uncounted_grant => {
                let ahead = from.since(self.at());
                NodeVote::Failed(NodeFailure::Suspect { ahead, counts_in: ahead })
            }
            None | Some(Content::Deferred(_)) => NodeVote::Granted,
            Some(Content::Other(answer)) => node_vote(answer),
        }
    }
}

pub(super) fn node_vote(answer: &Answer) -> NodeVote {
    match answer {
        Answer::Granted(_) => NodeVote::Granted,
        Answer::Denied(_) => NodeVote::Held,
        Answer::Missing { .. } => NodeVote::Missing,
        Answer::Excluded(failure) | Answer::Failed(failure) => NodeVote::Failed(failure.clone()),
    }
}
