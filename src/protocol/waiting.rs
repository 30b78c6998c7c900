//! One acquire that waits: whether it may compete, what is a reason to try again, and what becomes of it
//! when nobody polls it.
//!
//! A waiter is in one of these states:
//!
//! - **queued**: others stand before it;
//! - **first**: it may compete;
//! - **bypassed**: it had its turn, held nothing and did not move. It stands in no queue, and gets its old
//!   place back when it moves;
//! - **given up**: it had its turn and did not move, so what its attempt may have won was given up. It stands
//!   in no queue, and queues anew when it moves.
//!
//! Events in:
//!
//! - [`Waiting::handle_turn`]: nobody stands before it any more;
//! - [`Waiting::handle_wake`], [`Waiting::handle_poll`]: its future was woken, and polled;
//! - [`Waiting::handle_begin`], [`Waiting::handle_end`]: an attempt begins, and ends;
//! - [`Waiting::handle_refusal`]: the attempt was refused. Tries again soon if it could be granted by now;
//! - [`Waiting::handle_freed`]: a node says that all is gone there that could be in the way;
//! - [`Waiting::handle_news`]: there is a reason to try again at a time;
//! - [`Waiting::handle_glance`], [`Waiting::handle_held`]: it asks one node whether others were faster, and they were;
//! - [`Waiting::set_aside`]: takes the turn from one that does not move;
//! - [`Waiting::handle_move`]: the future moves. Says whether it may compete, or where it has to stand.
//!
//! Questions: [`Waiting::neglect`] is what is to become of one that does not move; [`Waiting::try_at`] is
//! when it next has a reason to try; [`Waiting::worth_while_at`] is whether so many nodes are free that it has one;
//! [`Waiting::glance`] is which node it asks first.

use super::freed::Free;
use super::quorum::{NodeId, NodeSet, Quorum};
use super::validity::Time;
use std::time::Duration;

/// Clients that are woken by the same push collide. Who was refused within this time before a push
/// waits for a random time up to it. It does not grow: who waited for long must not be the slowest.
const SPREAD: Duration = Duration::from_millis(3);

/// The shortest of these waits: no push is a reason to ask again at once, and again.
const LEAST_SPREAD: Duration = Duration::from_millis(1);

/// One in so many of those who would wait tries at once all the same. Who has let go of the lock and wants it again has
/// it back before those are done who wait: without this, it would nearly always.
const BOLD: u64 = 16;

/// After each attempt, one that waited for a random time asks a single node so often whether others were faster, before
/// it asks all.
const MAX_GLANCES: u8 = 4;

/// A future that was woken may leave it at that for so long; then it is neglected, and whoever stands
/// behind it may go first. It costs nobody anything but a collision if it moves after all.
const BYPASS_AFTER: Duration = Duration::from_millis(100);

/// A neglected future keeps what its attempt has won for so long while others of this process want
/// it. A `select!` whose other arms take long polls its acquire every now and then: that must do.
const PATIENCE: Duration = Duration::from_secs(2);

/// One acquire that may wait.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// The end of all its waiting.
    deadline: Time,
    phase: Phase,
    /// Until when winning the attempt under way means anything, if there is one.
    attempt_until: Option<Time>,
    /// Since when the future has something to do, if it was not polled since.
    woken_at: Option<Time>,
    /// Something happened: try again from then on.
    try_at: Option<Time>,
    /// Nodes that said that all is gone, since the last attempt or glance began.
    freed: NodeSet,
    /// When it was refused last, by an attempt or at a glance.
    refused_at: Option<Time>,
    /// When it tries, if that is so late only because others were told by the same push.
    spread_to: Option<Time>,
    /// The node that saw the lock held at a glance, and will tell when that changes: no other will.
    watched: Option<NodeId>,
    /// How many glances there were since the last attempt.
    glances: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Queued,
    First,
    Bypassed,
    GivenUp,
}

/// What is to become of a waiter that does not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Neglect {
    /// It holds nothing: those behind it may go first.
    Bypass,
    /// What its attempt holds is of no use any more.
    GiveUp,
    /// What its attempt holds is to be given up if others of this process want it.
    GiveUpIfWanted,
}

/// Where a waiter that moves stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    /// It may compete.
    Compete,
    /// It has to wait for its turn.
    Wait,
    /// It has to enter the queue again: at its old place, or at the end.
    Enter { at_end: bool },
}

impl Waiting {
    /// One that stands behind others.
    pub(crate) fn new(deadline: Time) -> Self {
        Self {
            deadline,
            phase: Phase::Queued,
            attempt_until: None,
            woken_at: None,
            try_at: None,
            freed: NodeSet::default(),
            refused_at: None,
            spread_to: None,
            watched: None,
            glances: 0,
        }
    }

    /// True while it stands behind others.
    pub(crate) fn is_queued(&self) -> bool {
        self.phase == Phase::Queued
    }

    /// True while it may compete.
    pub(crate) fn is_first(&self) -> bool {
        self.phase == Phase::First
    }

    /// Nobody stands before it any more.
    pub(crate) fn handle_turn(&mut self) {
        self.phase = Phase::First;
    }

    /// It stands behind others again, in another queue. It has no attempt under way.
    pub(crate) fn handle_requeued(&mut self) {
        self.phase = Phase::Queued;
    }

    pub(crate) fn handle_wake(&mut self, now: Time) {
        self.woken_at.get_or_insert(now);
    }

    pub(crate) fn handle_poll(&mut self) {
        self.woken_at = None;
    }

    /// An attempt begins, which is of no use from `valid_until` on.
    pub(crate) fn handle_begin(&mut self, valid_until: Time) {
        self.attempt_until = Some(valid_until);
        self.glances = 0;
        self.start_over();
    }

    /// One node is asked whether something stands there again. What it and others have told before is of no
    /// interest from now on.
    pub(crate) fn handle_glance(&mut self) {
        self.glances = self.glances.saturating_add(1);
        self.start_over();
    }

    /// `node` has answered by `now` that something stands there, and tells when that changes.
    pub(crate) fn handle_held(&mut self, node: NodeId, quorum: Quorum, now: Time, random: u64) {
        self.watched = Some(node);
        self.handle_refusal(Free::default(), quorum, now, random);
    }

    fn start_over(&mut self) {
        self.freed = NodeSet::default();
        (self.try_at, self.spread_to, self.watched) = (None, None, None);
    }

    /// The attempt has ended.
    pub(crate) fn handle_end(&mut self) {
        self.attempt_until = None;
    }

    /// The attempt was refused at `now`. If a quorum is free by what came in meanwhile, another is worth while.
    pub(crate) fn handle_refusal(&mut self, free: Free, quorum: Quorum, now: Time, random: u64) {
        self.refused_at = Some(now);
        if let Some(at) = self.worth_while_at(free, quorum, now, random) {
            self.handle_news(at);
        }
    }

    /// There is a reason to try again at `at`.
    pub(crate) fn handle_news(&mut self, at: Time) {
        self.try_at = Some(self.try_at.map_or(at, |known| known.min(at)));
    }

    /// All that was in the way on a node is gone there.
    pub(crate) fn handle_freed(&mut self, node: NodeId) {
        self.freed.insert(node);
    }

    /// Once a quorum is free, as far as is known, another attempt is worth while: when, unless it has a
    /// reason for one as soon already. `free` are the nodes that granted the last attempt, and those where what was in the
    /// way has gone; `random` is uniform over all of `u64`.
    pub(crate) fn worth_while_at(
        &mut self,
        free: Free,
        quorum: Quorum,
        now: Time,
        random: u64,
    ) -> Option<Time> {
        let is_watched_free = self.watched.is_some_and(|node| self.freed.contains(node));
        let is_free = is_watched_free || quorum.reached(free.nodes.union(self.freed).len());
        // Who spreads in time goes on to.
        let is_spread = self.spread_to.is_some() && self.try_at == self.spread_to;
        if is_spread || !is_free {
            return None;
        }
        let was_refused = self.refused_at.is_some_and(|at| now.since(at) < SPREAD);
        let has_collided = was_refused && !random.is_multiple_of(BOLD);
        let soonest = if has_collided { now.after(spread(random)) } else { now };
        let at = soonest.max(free.from);
        if self.try_at.is_some_and(|known| known <= at) {
            return None;
        }
        self.spread_to = has_collided.then_some(soonest);
        Some(at)
    }

    /// Which node to ask at `now`, before the next attempt, whether others were faster: one that said that all
    /// is gone, if others were told the same and this one has let them go first. `random` is any word.
    pub(crate) fn glance(&self, now: Time, random: u64) -> Option<NodeId> {
        let due = self.spread_to.filter(|due| self.try_at == Some(*due))?;
        if now < due || self.glances >= MAX_GLANCES {
            return None;
        }
        let count = u64::try_from(self.freed.len()).ok().filter(|count| *count > 0)?;
        let index = usize::try_from(random % count).ok()?;
        self.freed.iter().nth(index)
    }

    /// When it next has a reason to try; at once, if it was set aside.
    pub(crate) fn try_at(&self) -> Option<Time> {
        match self.phase {
            Phase::Bypassed | Phase::GivenUp => Some(Time::default()),
            Phase::Queued | Phase::First => self.try_at,
        }
    }

    /// What is to become of it at `now`, if its turn has come, it was woken, and has not moved since.
    pub(crate) fn neglect(&self, now: Time) -> Option<Neglect> {
        let idle = self.idle(now).filter(|idle| *idle >= BYPASS_AFTER)?;
        match self.attempt_until {
            None => Some(Neglect::Bypass),
            Some(until) if now >= until || now >= self.deadline => Some(Neglect::GiveUp),
            Some(_) => (idle >= PATIENCE).then_some(Neglect::GiveUpIfWanted),
        }
    }

    /// Takes its turn away, unless it has moved by `now`. False if it has.
    pub(crate) fn set_aside(&mut self, now: Time) -> bool {
        let is_idle = self.idle(now).is_some_and(|idle| idle >= BYPASS_AFTER);
        if is_idle {
            self.give_up();
        }
        is_idle
    }

    /// Takes its turn away, whether it moves or not.
    pub(crate) fn give_up(&mut self) {
        let had_attempt = self.attempt_until.take().is_some();
        self.phase = if had_attempt { Phase::GivenUp } else { Phase::Bypassed };
    }

    /// Its future moves: whether it may compete, and where it stands from now on.
    pub(crate) fn handle_move(&mut self) -> Move {
        match self.phase {
            Phase::First => Move::Compete,
            Phase::Queued => Move::Wait,
            // It had its turn, and has it still.
            Phase::Bypassed => {
                self.phase = Phase::First;
                Move::Enter { at_end: false }
            }
            Phase::GivenUp => {
                self.phase = Phase::Queued;
                Move::Enter { at_end: true }
            }
        }
    }

    /// For how long it has not moved though it could.
    fn idle(&self, now: Time) -> Option<Duration> {
        let woken_at = self.woken_at.filter(|_| self.is_first())?;
        Some(now.since(woken_at))
    }
}

/// A time from [`LEAST_SPREAD`] to [`SPREAD`].
fn spread(random: u64) -> Duration {
    let span = SPREAD.saturating_sub(LEAST_SPREAD).as_nanos();
    let more = u64::try_from((span * u128::from(random)) >> 64).expect("a spread is short");
    LEAST_SPREAD + Duration::from_nanos(more)
}

#[cfg(test)]
#[path = "waiting_tests.rs"]
mod tests;
