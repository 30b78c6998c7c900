//! A round: one request that is sent to all nodes, and at most one decision based on their replies.
//!
//! Before a node's vote, record the details of its reply with [`Round::note_free_at`], [`Round::note_counter`] and
//! [`Round::note_counts_from`]. Then report the vote with [`Round::handle_vote`]. Call [`Round::handle_time`] at the
//! time that [`Round::due`] returns, and [`Round::handle_close`] when the node timeout ends. Each of these methods
//! returns the outcome if and only if the call decided the round.

use super::fencing::{Choice, choose};
use super::quorum::{MAX_NODES, NodeId, NodeSet, Quorum};
use super::validity::Time;

/// One node's reply to the request of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    /// Acquire: the node set the key. Extend: the key held this client's value, and its ttl is now at least the
    /// requested ttl. Release: the key held this client's value, and the node deleted the key.
    Granted,
    /// The key holds another value or has another type. In an acquire of any one of several keys, also: the node set
    /// another key than the one that counts.
    Denied,
    /// The key does not exist. Occurs only in extend, release and survey rounds.
    Missing,
    /// The command failed, so the state of the key is unknown.
    Failed,
}

/// The purpose of a round, and the time before which the round must be won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Acquire the lock: a quorum must set the key before `valid_until` (I3).
    Acquire { valid_until: Time },
    /// Commit a fencing token: before `valid_until`, a quorum must confirm that the key still holds this client's value
    /// and that the counter is `token` (I13).
    Confirm { valid_until: Time, token: u64 },
    /// Extend the lease: a quorum must extend the key before the `current` validity ends (I9). The new validity ends at
    /// `proposed`.
    Extend { current: Time, proposed: Time },
    /// Release the lock: nodes delete the key if it holds this client's value. Such a round has no time limit.
    Release,
    /// Collect the replies of all nodes. The round is decided when all nodes have voted or the round is closed.
    Survey,
}

impl Goal {
    /// Returns the time before which the lock must be acquired, or its token confirmed. Returns `None` for other goals.
    pub(crate) fn valid_until(self) -> Option<Time> {
        match self {
            Self::Acquire { valid_until } | Self::Confirm { valid_until, .. } => Some(valid_until),
            Self::Extend { .. } | Self::Release | Self::Survey => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A quorum granted the request within the time limit of the [`Goal`].
    Won,
    /// A quorum granted the request, but only after the validity had ended.
    TooLate,
    /// A quorum is impossible because other clients hold the lock.
    Denied,
    /// A quorum is impossible because the key does not exist (extend and release).
    Missing,
    /// A quorum is impossible because too many nodes failed or did not reply.
    NoQuorum,
}

#[derive(Clone, Debug)]
pub(crate) struct Round {
    quorum: Quorum,
    goal: Goal,
    granted: NodeSet,
    denied: NodeSet,
    missing: NodeSet,
    failed: NodeSet,
    /// The nodes that will send a push when the conflicting key changes.
    watching: NodeSet,
    /// Boxed to keep leases small: a lease keeps the round in which it was acquired, and most rounds have no details.
    details: Option<Box<ReplyDetails>>,
    /// The latest time that was passed to a method. Grants are evaluated at this time.
    now: Time,
    closed: bool,
    outcome: Option<Outcome>,
}

/// Details that only some replies contain.
#[derive(Clone, Debug)]
struct ReplyDetails {
    /// The time at which the conflicting key becomes free, for each denying node that reported its expiry or has set
    /// another key.
    free_at: Vec<Time>,
    /// The fencing counter of each node that reported one.
    counters: Vec<(NodeId, u64)>,
    /// The nodes whose clock stepped forward, each with the time from which its grant counts towards the quorum.
    deferred: Vec<(NodeId, Time)>,
}

static NO_DETAILS: ReplyDetails =
    ReplyDetails { free_at: Vec::new(), counters: Vec::new(), deferred: Vec::new() };

impl Round {
    pub(crate) fn new(quorum: Quorum, goal: Goal) -> Self {
        Self {
            quorum,
            goal,
            granted: NodeSet::default(),
            denied: NodeSet::default(),
            missing: NodeSet::default(),
            failed: NodeSet::default(),
            watching: NodeSet::default(),
            details: None,
            now: Time::default(),
            closed: false,
            outcome: None,
        }
    }

    pub(crate) fn quorum(&self) -> Quorum {
        self.quorum
    }

    pub(crate) fn goal(&self) -> Goal {
        self.goal
    }

    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    pub(crate) fn granted(&self) -> NodeSet {
        self.granted
    }

    pub(crate) fn denied(&self) -> NodeSet {
        self.denied
    }

    pub(crate) fn has_denied(&self, node: NodeId) -> bool {
        self.denied.contains(node)
    }

    /// Returns the earliest time at which a quorum of nodes can be free, if every holder keeps its key until expiry.
    /// Returns `None` if too few nodes reported an expiry time, or if failed nodes rather than conflicting keys prevent
    /// the quorum.
    ///
    /// With f failed nodes, the lock can be acquired while N - quorum - f conflicting keys still exist. All other
    /// conflicting keys must have expired.
    pub(crate) fn earliest_free(&self) -> Option<Time> {
        let (all, needed) = (self.quorum.nodes(), self.quorum.needed());
        let spare = (all - needed).checked_sub(self.failed.len())?;
        let place = self.denied.len().checked_sub(spare + 1)?;
        let mut free_at = self.details().free_at.clone();
        free_at.sort_unstable();
        free_at.get(place).copied()
    }

    pub(crate) fn missing(&self) -> NodeSet {
        self.missing
    }

    /// Returns true if failed nodes alone make a quorum impossible. Nodes that have not voted are not treated as
    /// failed.
    pub(crate) fn blocked_by_failures(&self) -> bool {
        self.quorum.blocked(self.failed.len())
    }

    /// Returns the nodes that have voted.
    pub(crate) fn votes(&self) -> NodeSet {
        self.granted.union(self.denied).union(self.missing).union(self.failed)
    }

    /// Records the vote of `node`, and returns the outcome if this vote decides the round. A second vote of the same
    /// node is ignored (I1). A vote after the decision is recorded, but does not change the decision (I2).
    pub(crate) fn handle_vote(&mut self, node: NodeId, vote: Vote, now: Time) -> Option<Outcome> {
        if self.votes().contains(node) {
            return None;
        }
        let set = match vote {
            Vote::Granted if !self.is_confirmed(node) => &mut self.failed,
            Vote::Granted => &mut self.granted,
            Vote::Denied => &mut self.denied,
            Vote::Missing => &mut self.missing,
            Vote::Failed => &mut self.failed,
        };
        set.insert(node);
        self.decide(now)
    }

    fn details(&self) -> &ReplyDetails {
        self.details.as_deref().unwrap_or(&NO_DETAILS)
    }

    fn details_mut(&mut self) -> &mut ReplyDetails {
        self.details.get_or_insert_with(|| Box::new(NO_DETAILS.clone()))
    }

    /// Records that the conflicting key on a denying node expires at `at`, unless its holder extends the key. Call this
    /// method before the node's vote.
    pub(crate) fn note_free_at(&mut self, at: Time) {
        self.details_mut().free_at.push(at);
    }

    /// Records that `node` will send a push when the conflicting key changes.
    pub(crate) fn note_watching(&mut self, node: NodeId) {
        self.watching.insert(node);
    }

    /// Returns true if a quorum of nodes will send a push when their conflicting keys change. The client is then
    /// notified of every release.
    pub(crate) fn is_watched(&self) -> bool {
        self.quorum.reached(self.watching.len())
    }

    /// Records that `node` replied with the fencing counter `number`. Call this method before the node's vote.
    pub(crate) fn note_counter(&mut self, node: NodeId, number: u64) {
        self.details_mut().counters.push((node, number));
    }

    /// Defers the grant of `node`: the grant counts towards the quorum only from `at` onwards. The node's clock stepped
    /// forward, so a former holder may still rely on the lock until then. Call this method before the node's vote.
    pub(crate) fn note_counts_from(&mut self, node: NodeId, at: Time) {
        self.details_mut().deferred.push((node, at));
    }

    /// Re-evaluates the round at `now`, because [deferred](Self::note_counts_from) grants may have begun to count.
    /// Returns the outcome if this decides the round.
    pub(crate) fn handle_time(&mut self, now: Time) -> Option<Outcome> {
        self.decide(now)
    }

    /// Returns when the grants so far, including deferred ones, will form a quorum. The caller must call
    /// [`handle_time`](Self::handle_time) at that time. Returns `None` if too few nodes have granted, if a quorum would
    /// form too late, or if the round is already decided or closed.
    pub(crate) fn due(&self) -> Option<Time> {
        let is_open = self.outcome.is_none() && !self.closed;
        // This method runs for each vote, so it must not allocate.
        let may_be = is_open && self.granted.len() >= self.quorum.needed();
        let valid_until = self.goal.valid_until().filter(|_| may_be)?;
        let granted = self.quorum.ids().filter(|node| self.granted.contains(*node));
        let mut room = [Time::default(); MAX_NODES];
        let mut count = 0;
        for (at, node) in room.iter_mut().zip(granted) {
            *at = self.counts_from(node);
            count += 1;
        }
        let counts_from = &mut room[..count];
        counts_from.sort_unstable();
        let due = counts_from.get(self.quorum.needed() - 1);
        due.copied().filter(|due| *due < valid_until)
    }

    pub(crate) fn counters(&self) -> &[(NodeId, u64)] {
        &self.details().counters
    }

    /// Returns the fencing token chosen from the counters of the nodes whose grants count. Returns `None` if fewer
    /// nodes than a quorum reported a counter.
    pub(crate) fn choice(&self) -> Option<Choice> {
        let counted = self.counted();
        let counters = self.details().counters.iter().filter(|(node, _)| counted.contains(*node));
        choose(self.quorum, counters.map(|(_, number)| *number).collect())
    }

    /// Closes the round, and returns the outcome if this decides the round. Nodes that have not voted are treated as
    /// failed.
    pub(crate) fn handle_close(&mut self, now: Time) -> Option<Outcome> {
        self.closed = true;
        self.decide(now)
    }

    fn decide(&mut self, now: Time) -> Option<Outcome> {
        if self.outcome.is_some() {
            return None;
        }
        // Callers need not pass times in order.
        let now = self.now.max(now);
        self.now = now;
        if self.goal == Goal::Survey && !self.is_over() {
            return None;
        }
        let outcome = if self.quorum.reached(self.counted().len()) {
            if self.in_time(now) { Outcome::Won } else { Outcome::TooLate }
        } else {
            self.impossible()?
        };
        debug_assert!(outcome != Outcome::Won || self.in_time(now), "I3");
        self.outcome = Some(outcome);
        Some(outcome)
    }

    /// Returns false if this round confirms a token and the counter on `node` differs from the token. In that case,
    /// another command of this client raised the counter, and the client has not received the reply to that command.
    fn is_confirmed(&self, node: NodeId) -> bool {
        match self.goal {
            Goal::Confirm { token, .. } => self.details().counters.contains(&(node, token)),
            _ => true,
        }
    }

    /// Returns the nodes whose grants count towards the quorum at `self.now`, which no longer changes after the
    /// decision.
    fn counted(&self) -> NodeSet {
        let deferred = self.details().deferred.iter().filter(|(_, at)| *at > self.now);
        self.granted.without(deferred.map(|(node, _)| *node).collect())
    }

    /// Returns the number of deferred grants that will not count before the round ends.
    fn never_counting(&self) -> usize {
        let end = self.goal.valid_until();
        let never_counts =
            |at: Time| if self.closed { at > self.now } else { end.is_some_and(|end| at >= end) };
        let never_counting = self
            .details()
            .deferred
            .iter()
            .filter(|(node, at)| self.granted.contains(*node) && never_counts(*at));
        never_counting.count()
    }

    fn counts_from(&self, node: NodeId) -> Time {
        let deferred = self.details().deferred.iter().find(|(deferred, _)| *deferred == node);
        deferred.map_or(Time::default(), |(_, at)| *at)
    }

    /// Returns true if the grant of `node` is deferred and does not count yet, although the number of grants is
    /// sufficient for a quorum.
    pub(crate) fn is_uncounted_grant(&self, node: NodeId) -> bool {
        let never_counting = self.granted.without(self.counted());
        self.quorum.reached(self.granted.len()) && never_counting.contains(node)
    }

    fn is_over(&self) -> bool {
        self.closed || self.votes().len() == self.quorum.nodes()
    }

    fn in_time(&self, now: Time) -> bool {
        match self.goal {
            Goal::Acquire { valid_until } | Goal::Confirm { valid_until, .. } => now < valid_until,
            Goal::Extend { current, .. } => now < current,
            Goal::Release | Goal::Survey => true,
        }
    }

    /// Returns the outcome if a quorum is impossible. Returns `None` while a quorum is possible, or while both
    /// contention and failure can still be the cause. A release waits for every vote, so that it reports the exact
    /// cause.
    fn impossible(&self) -> Option<Outcome> {
        let silent = self.quorum.nodes() - self.votes().len();
        let is_over = self.is_over();
        // A grant that can no longer count is treated as a failure.
        let failed =
            self.failed.len() + self.never_counting() + if self.closed { silent } else { 0 };
        let (denied, missing) = (self.denied.len(), self.missing.len());
        if self.goal == Goal::Release && !is_over {
            return None;
        }
        if self.quorum.blocked(failed) {
            Some(Outcome::NoQuorum)
        } else if self.quorum.blocked(denied) {
            Some(Outcome::Denied)
        } else if self.quorum.blocked(denied + missing) {
            Some(Outcome::Missing)
        } else if !is_over || self.due().is_some() {
            None
        } else if matches!(self.goal, Goal::Acquire { .. } | Goal::Confirm { .. }) {
            // A quorum replied without a failure, so at least one node denied.
            Some(Outcome::Denied)
        } else {
            Some(Outcome::NoQuorum)
        }
    }
}

#[cfg(test)]
#[path = "round_tests.rs"]
mod tests;
