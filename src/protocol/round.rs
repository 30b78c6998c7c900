//! A round: one request to all nodes, with at most one decision.
//!
//! - Details of a node's reply, recorded before its vote: [`Round::note_free_at`], [`Round::note_counter`],
//!   [`Round::note_counts_from`].
//! - Events: [`Round::handle_vote`], [`Round::handle_time`], [`Round::handle_close`]. Each returns the outcome if and
//!   only if the event decided the round.
//! - Getters: [`Round::outcome`], [`Round::due`], [`Round::votes`], [`Round::choice`], and the sets of nodes by vote.

use super::fencing::{Choice, choose};
use super::quorum::{MAX_NODES, NodeId, NodeSet, Quorum};
use super::validity::Time;

/// One node's reply in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    /// Acquire: the node set the key. Extend: the key held this client's value, and its ttl is now at least the
    /// requested ttl. Release: the key held this client's value, and the node deleted the key.
    Granted,
    /// The key holds another value or has another type.
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
    /// Returns the time from which a won acquire is useless.
    pub(crate) fn valid_until(self) -> Option<Time> {
        match self {
            Self::Acquire { valid_until } | Self::Confirm { valid_until, .. } => Some(valid_until),
            Self::Extend { .. } | Self::Release | Self::Survey => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A quorum granted in time.
    Won,
    /// A quorum granted, but only after the validity had ended.
    TooLate,
    /// A quorum is impossible because other clients hold the lock.
    Denied,
    /// A quorum is impossible because the key does not exist (extend and release).
    Missing,
    /// A quorum is impossible because of nodes that failed or did not reply.
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
    /// Boxed and usually `None` to keep leases small, because a lease keeps the round in which it was acquired.
    details: Option<Box<ReplyDetails>>,
    /// The latest `now` passed with an event.
    now: Time,
    closed: bool,
    outcome: Option<Outcome>,
}

/// Details that only some replies contain.
#[derive(Clone, Debug)]
struct ReplyDetails {
    /// The expiry time of the conflicting key, for each denial that reported one.
    free_at: Vec<Time>,
    /// The fencing counters reported by nodes.
    numbers: Vec<(NodeId, u64)>,
    /// The nodes whose clocks stepped ahead, with the time from which each node's grant counts.
    deferred: Vec<(NodeId, Time)>,
}

static NO_DETAILS: ReplyDetails =
    ReplyDetails { free_at: Vec::new(), numbers: Vec::new(), deferred: Vec::new() };

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

    /// Returns the earliest time at which a quorum can be free if every holder keeps its key until expiry. With b busy
    /// and f failed nodes, b - (N - quorum - f) of the b keys have expired then. Returns `None` if too few nodes
    /// reported an expiry.
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

    /// Returns true if failed nodes alone make a quorum impossible. Nodes that have not voted do not count as failed.
    pub(crate) fn blocked_by_failures(&self) -> bool {
        self.quorum.blocked(self.failed.len())
    }

    /// Returns the nodes that have voted.
    pub(crate) fn votes(&self) -> NodeSet {
        self.granted.union(self.denied).union(self.missing).union(self.failed)
    }

    /// Records the vote of `node`. A second vote of the same node is ignored (I1). A vote after the decision is
    /// recorded, but does not change the decision (I2).
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

    /// Records the expiry time of the conflicting key on a node that denied. The holder can still extend the key. Call
    /// this method before the node's vote.
    pub(crate) fn note_free_at(&mut self, at: Time) {
        self.details_mut().free_at.push(at);
    }

    /// Records that `node` will send a push when the conflicting key changes.
    pub(crate) fn note_watching(&mut self, node: NodeId) {
        self.watching.insert(node);
    }

    /// Returns true if a quorum of nodes will send a push when the conflicting keys change. The client then notices
    /// every release.
    pub(crate) fn is_watched(&self) -> bool {
        self.quorum.reached(self.watching.len())
    }

    /// Records the fencing counter of `node`. Call this method before the node's vote.
    pub(crate) fn note_counter(&mut self, node: NodeId, number: u64) {
        self.details_mut().numbers.push((node, number));
    }

    /// Records that a grant of `node` counts only from `at` on: the node's clock stepped ahead, and a former holder may
    /// rely on the lock until then. Call this method before the node's vote.
    pub(crate) fn note_counts_from(&mut self, node: NodeId, at: Time) {
        self.details_mut().deferred.push((node, at));
    }

    /// Re-evaluates the round at `now`, because deferred grants may count since the last event.
    pub(crate) fn handle_time(&mut self, now: Time) -> Option<Outcome> {
        self.decide(now)
    }

    /// Returns the time at which the current grants, some of them deferred, will count as a quorum. The caller must
    /// call [`handle_time`](Self::handle_time) then. Returns `None` if the grants are no quorum or would count too
    /// late.
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

    pub(crate) fn numbers(&self) -> &[(NodeId, u64)] {
        &self.details().numbers
    }

    /// Returns the token chosen from the counters of the nodes whose grants count. Returns `None` if they are no
    /// quorum.
    pub(crate) fn choice(&self) -> Option<Choice> {
        let counted = self.counted();
        let numbers = self.details().numbers.iter().filter(|(node, _)| counted.contains(*node));
        choose(self.quorum, numbers.map(|(_, number)| *number).collect())
    }

    /// Closes the round. Nodes that have not voted count as failed.
    pub(crate) fn handle_close(&mut self, now: Time) -> Option<Outcome> {
        self.closed = true;
        self.decide(now)
    }

    fn decide(&mut self, now: Time) -> Option<Outcome> {
        if self.outcome.is_some() {
            return None;
        }
        // Several tasks read the clock, so `now` can be earlier than in a previous event.
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
    /// another command of this client raised the counter, and its reply was not received.
    fn is_confirmed(&self, node: NodeId) -> bool {
        match self.goal {
            Goal::Confirm { token, .. } => self.details().numbers.contains(&(node, token)),
            _ => true,
        }
    }

    /// Returns the nodes whose grants count at `self.now`, which stays fixed after the decision.
    fn counted(&self) -> NodeSet {
        let deferred = self.details().deferred.iter().filter(|(_, at)| *at > self.now);
        self.granted.without(deferred.map(|(node, _)| *node).collect())
    }

    /// Returns the number of grants that can no longer count in this round.
    fn never_counting(&self) -> usize {
        let end = self.goal.valid_until();
        let is_void =
            |at: Time| if self.closed { at > self.now } else { end.is_some_and(|end| at >= end) };
        let never_counting = self
            .details()
            .deferred
            .iter()
            .filter(|(node, at)| self.granted.contains(*node) && is_void(*at));
        never_counting.count()
    }

    fn counts_from(&self, node: NodeId) -> Time {
        let deferred = self.details().deferred.iter().find(|(deferred, _)| *deferred == node);
        deferred.map_or(Time::default(), |(_, at)| *at)
    }

    /// Returns true if the grant of `node` does not count, although all grants together would be a quorum.
    pub(crate) fn is_void(&self, node: NodeId) -> bool {
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

    /// Returns the outcome if a quorum is impossible. Returns `None` while a quorum is possible, or while the cause can
    /// still be either contention or failure. A release waits for every vote, so that it reports the exact cause.
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
