//! A round: one fan-out to all nodes, with at most one decision.
//!
//! - Notes on a vote that is about to come: [`Round::note_free_at`], [`Round::note_number`],
//!   [`Round::note_counts_from`].
//! - Events in: [`Round::handle_vote`], [`Round::handle_time`], [`Round::handle_close`]; each returns the
//!   outcome if, and only if, it is the event that decided.
//! - Getters: [`Round::outcome`], [`Round::due`], [`Round::votes`], [`Round::choice`], and the sets of
//!   nodes by vote.

use super::fencing::{Choice, can_agree, choose};
use super::quorum::{MAX_NODES, NodeId, NodeSet, Quorum};
use super::validity::Time;

/// One node's answer in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    /// Acquire: the key was set. Extend: it was ours, and its ttl is at least what was asked.
    /// Release: it was ours, and was deleted.
    Granted,
    /// Another value, or a foreign type, is at the key.
    Denied,
    /// Extend, release and look only: there is no such key.
    Missing,
    /// Anything else: nothing is known of the key.
    Failed,
}

/// What a round is for, and until when winning it means anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Set the key on a quorum before `valid_until` (I3).
    Acquire { valid_until: Time },
    /// Confirm on a quorum, before `valid_until`, that the key is still ours and its counter stands at
    /// `token` (I13).
    Raise { valid_until: Time, token: u64 },
    /// Extend on a quorum before the `current` validity ends (I9); then it ends at `proposed`.
    Extend { current: Time, proposed: Time },
    /// Delete the key wherever it is ours. There is no "too late" for that.
    Release,
    /// Hear every node: there is no majority to be had.
    Survey,
}

impl Goal {
    /// Until when winning an acquire means anything.
    pub(crate) fn valid_until(self) -> Option<Time> {
        match self {
            Self::Acquire { valid_until } | Self::Raise { valid_until, .. } => Some(valid_until),
            Self::Extend { .. } | Self::Release | Self::Survey => None,
        }
    }
}

/// How a round was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A quorum granted, in time.
    Won,
    /// A quorum granted, but when it did, the time it could have counted for was over.
    TooLate,
    /// A quorum is impossible because of other holders.
    Denied,
    /// A quorum is impossible because the key is gone (extend and release).
    Missing,
    /// A quorum is impossible because of nodes that failed or did not answer.
    NoQuorum,
}

/// Votes in, at most one [`Outcome`] out.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    quorum: Quorum,
    goal: Goal,
    granted: NodeSet,
    denied: NodeSet,
    missing: NodeSet,
    failed: NodeSet,
    /// The nodes that will tell when a key that is in the way changes.
    watching: NodeSet,
    /// Nothing, as a rule: a lease keeps the round that it was acquired in.
    told: Option<Box<Told>>,
    /// The time of the latest event.
    now: Time,
    closed: bool,
    outcome: Option<Outcome>,
}

/// What only some nodes tell with their votes.
#[derive(Clone, Debug)]
struct Told {
    /// When keys that are in the way are gone, as far as nodes that denied have told.
    free_at: Vec<Time>,
    /// Where counters stand, as nodes have told that were asked for it.
    numbers: Vec<(NodeId, u64)>,
    /// The nodes whose grant counts only from some time on, as their clocks have stepped ahead.
    deferred: Vec<(NodeId, Time)>,
}

static NOTHING: Told = Told { free_at: Vec::new(), numbers: Vec::new(), deferred: Vec::new() };

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
            told: None,
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

    /// When a quorum can be free at the earliest, if everybody who holds a key keeps it to its end:
    /// with b nodes busy and f failed, when the (b - (N - quorum - f))-th of the b is gone. `None` if
    /// too few have told.
    pub(crate) fn earliest_free(&self) -> Option<Time> {
        let (all, needed) = (self.quorum.nodes(), self.quorum.needed());
        let spare = (all - needed).checked_sub(self.failed.len())?;
        let place = self.denied.len().checked_sub(spare + 1)?;
        let mut free_at = self.told().free_at.clone();
        free_at.sort_unstable();
        free_at.get(place).copied()
    }

    /// The nodes that said that there is no such key.
    pub(crate) fn missing(&self) -> NodeSet {
        self.missing
    }

    /// True if failed nodes alone make a quorum impossible, the silent ones not counted.
    pub(crate) fn blocked_by_failures(&self) -> bool {
        self.quorum.blocked(self.failed.len())
    }

    /// The nodes that voted.
    pub(crate) fn votes(&self) -> NodeSet {
        self.granted.union(self.denied).union(self.missing).union(self.failed)
    }

    /// Records what `node` said at `now`. A second vote of a node is ignored (I1); a vote after the
    /// decision is recorded, and decides nothing (I2).
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

    fn told(&self) -> &Told {
        self.told.as_deref().unwrap_or(&NOTHING)
    }

    fn told_mut(&mut self) -> &mut Told {
        self.told.get_or_insert_with(|| Box::new(NOTHING.clone()))
    }

    /// Records that the key which is in the way on a node that denied is gone at `at`, if it is not
    /// extended. Comes before that node's vote.
    pub(crate) fn note_free_at(&mut self, at: Time) {
        self.told_mut().free_at.push(at);
    }

    /// `node` will tell when the key that is in the way changes.
    pub(crate) fn note_watching(&mut self, node: NodeId) {
        self.watching.insert(node);
    }

    /// True if a quorum of nodes will tell when keys change that are in the way: nobody can let go of the lock
    /// without a word.
    pub(crate) fn is_watched(&self) -> bool {
        self.quorum.reached(self.watching.len())
    }

    /// Records where the counter on `node` stands. Comes before that node's vote.
    pub(crate) fn note_number(&mut self, node: NodeId, number: u64) {
        self.told_mut().numbers.push((node, number));
    }

    /// Records that a grant of `node` counts from `at` on, and not before: its clock has stepped ahead,
    /// and a former holder may rely on the lock until then. Comes before that node's vote.
    pub(crate) fn note_counts_from(&mut self, node: NodeId, at: Time) {
        self.told_mut().deferred.push((node, at));
    }

    /// Takes that it is `now`: grants may have begun to count.
    pub(crate) fn handle_time(&mut self, now: Time) -> Option<Outcome> {
        self.decide(now)
    }

    /// When a quorum of those that have granted up to now counts, if not all of them count yet: whoever
    /// waits for the round looks again then, with [`handle_time`](Self::handle_time). `None` if they are
    /// no quorum, or count too late.
    pub(crate) fn due(&self) -> Option<Time> {
        let is_open = self.outcome.is_none() && !self.closed;
        // It is asked with each vote.
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

    /// What the numbers of the nodes that granted come to; `None` while they are no quorum.
    pub(crate) fn choice(&self) -> Option<Choice> {
        choose(self.quorum, self.counted_numbers())
    }

    /// The numbers of the nodes whose grants count.
    fn counted_numbers(&self) -> Vec<u64> {
        let counted = self.counted();
        let numbers = self.told().numbers.iter().filter(|(node, _)| counted.contains(*node));
        numbers.map(|(_, number)| *number).collect()
    }

    /// Until when an answer is worth waiting for that may agree with those which decided: then the token need not be
    /// confirmed in a round of its own, which takes about as long as this one did from `t1` on. `None` if no number can
    /// be that of a quorum any more, or one is.
    pub(crate) fn may_agree_until(&self, t1: Time) -> Option<Time> {
        self.told.as_deref()?;
        let is_won = self.outcome == Some(Outcome::Won) && !self.is_over();
        if !is_won || !matches!(self.choice(), Some(Choice::Raise(_))) {
            return None;
        }
        let silent = self.quorum.nodes() - self.votes().len();
        let may_agree = can_agree(self.quorum, self.counted_numbers(), silent);
        may_agree.then(|| self.now.after(self.now.since(t1)))
    }

    /// Ends the waiting: from now on, nodes that have not voted count as failed.
    pub(crate) fn handle_close(&mut self, now: Time) -> Option<Outcome> {
        self.closed = true;
        self.decide(now)
    }

    fn decide(&mut self, now: Time) -> Option<Outcome> {
        if self.outcome.is_some() {
            return None;
        }
        // What was read by several tasks is not counted in the order in which it was read.
        let now = self.now.max(now);
        self.now = now;
        if self.goal == Goal::Survey && !self.is_over() {
            return None;
        }
        let outcome = if self.quorum.reached(self.counted().len()) {
            if self.in_time(now) { Outcome::Won } else { Outcome::TooLate }
        } else {
            self.lost()?
        };
        debug_assert!(outcome != Outcome::Won || self.in_time(now), "I3");
        self.outcome = Some(outcome);
        Some(outcome)
    }

    /// False if this is a raise, and the counter on `node` is not where it was to go: another number,
    /// which we have not heard of, was drawn for us there.
    fn is_confirmed(&self, node: NodeId) -> bool {
        match self.goal {
            Goal::Raise { token, .. } => self.told().numbers.contains(&(node, token)),
            _ => true,
        }
    }

    /// The nodes whose grant counts: at the decision, and before it by now.
    fn counted(&self) -> NodeSet {
        let deferred = self.told().deferred.iter().filter(|(_, at)| *at > self.now);
        self.granted.without(deferred.map(|(node, _)| *node).collect())
    }

    /// How many nodes granted and will not count in this round any more.
    fn void(&self) -> usize {
        let end = self.goal.valid_until();
        let is_void =
            |at: Time| if self.closed { at > self.now } else { end.is_some_and(|end| at >= end) };
        let void = self
            .told()
            .deferred
            .iter()
            .filter(|(node, at)| self.granted.contains(*node) && is_void(*at));
        void.count()
    }

    /// From when on a grant of `node` counts.
    fn counts_from(&self, node: NodeId) -> Time {
        let deferred = self.told().deferred.iter().find(|(deferred, _)| *deferred == node);
        deferred.map_or(Time::default(), |(_, at)| *at)
    }

    /// True if `node` granted and does not count, and that makes a difference.
    pub(crate) fn is_void(&self, node: NodeId) -> bool {
        let void = self.granted.without(self.counted());
        self.quorum.reached(self.granted.len()) && void.contains(node)
    }

    /// True if nobody else can vote.
    fn is_over(&self) -> bool {
        self.closed || self.votes().len() == self.quorum.nodes()
    }

    fn in_time(&self, now: Time) -> bool {
        match self.goal {
            Goal::Acquire { valid_until } | Goal::Raise { valid_until, .. } => now < valid_until,
            Goal::Extend { current, .. } => now < current,
            Goal::Release | Goal::Survey => true,
        }
    }

    /// Why a quorum cannot come any more; `None` while it still can, and while it is not clear yet
    /// whether holders or failures are the reason. A release waits for all answers: it has no hurry
    /// to say that it failed, and says more exactly why.
    fn lost(&self) -> Option<Outcome> {
        let silent = self.quorum.nodes() - self.votes().len();
        let is_over = self.is_over();
        // Grants that never count in this round are no better than failures.
        let failed = self.failed.len() + self.void() + if self.closed { silent } else { 0 };
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
        } else if matches!(self.goal, Goal::Acquire { .. } | Goal::Raise { .. }) {
            // Enough nodes answered, so at least one of them said that another holds it.
            Some(Outcome::Denied)
        } else {
            Some(Outcome::NoQuorum)
        }
    }
}

#[cfg(test)]
#[path = "round_tests.rs"]
mod tests;
