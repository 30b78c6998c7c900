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
//! - [`Waiting::handle_rivals`]: other clients compete for the lock;
//! - [`Waiting::handle_held`]: the first node has refused, and no other node received the attempt;
//! - [`Waiting::set_aside`]: takes the turn from one that does not move;
//! - [`Waiting::handle_move`]: the future moves. Says whether it may compete, or where it has to stand.
//!
//! Questions: [`Waiting::neglect`] is what is to become of one that does not move; [`Waiting::try_at`] is
//! when it next has a reason to try; [`Waiting::worth_while_at`] is whether so many nodes are free that it has one;
//! [`Waiting::asks_one_first`] is whether the next attempt asks one node before the others.
//!
//! Clients that receive the same push compete. Each that loses such a race rests for a random time before it reacts to a
//! push again. The longest rest doubles with each lost race, so that few of many waiters compete for each release. A
//! client that acquires the lock again begins with nearly the same rest: else two clients would take turns while the
//! others rest. A waiter that has lost a race asks one node first: of all that do, that node grants one.

use super::freed::Free;
use super::quorum::{NodeId, NodeSet, Quorum};
use super::retry::draw;
use super::validity::Time;
use std::time::Duration;

/// The longest rest after the first lost race is twice this; it doubles with each further one.
const REST: Duration = Duration::from_micros(3_500);

/// A lost race adds this to [`Waiting::lost`]. A won race takes away 1, so that clients which win by chance do not soon
/// compete more often than others.
const LOST_RACE: u32 = 4;

/// The longest rest does not grow beyond this.
const MAX_LOST: u32 = 6 * LOST_RACE;

/// From this on, a client that returns and is refused rests as after a lost race.
const CROWD: u32 = 4 * LOST_RACE;

/// A client that acquires a contended lock again holds back for this time. Waiters receive the push of its release after
/// its own reply, so they would hardly ever win.
const HOLD_BACK: Duration = Duration::from_millis(1);

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
    /// Nodes that reported the key deleted, since the last attempt began.
    freed: NodeSet,
    /// Lost races, each counted as [`LOST_RACE`], less won ones. A race is an attempt that a push caused at once.
    lost: u32,
    /// End of the rest after the last lost race: it does not react to a push before this time.
    rests_until: Time,
    /// True before the first attempt, if others competed for the lock when this client used it last.
    is_back: bool,
    /// True if a push caused the next attempt.
    is_pushed: bool,
    /// True if a push causes the next attempt at once, and not after a rest.
    is_race: bool,
    /// The node that refused the last attempt alone, and pushes when the key is deleted. No other node will.
    watched: Option<NodeId>,
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
            lost: 0,
            rests_until: Time::default(),
            is_back: false,
            is_pushed: false,
            is_race: false,
            watched: None,
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
        self.freed = NodeSet::default();
        (self.try_at, self.watched) = (None, None);
        self.is_pushed = false;
    }

    /// Other clients compete for the lock. `lost` is [`lost`](Self::lost) of this client's previous acquire.
    pub(crate) fn handle_rivals(&mut self, lost: u32) {
        self.lost = self.lost.max(lost).max(1);
    }

    /// The same for a client that used the lock last just before `now`: others go first.
    pub(crate) fn handle_return(&mut self, lost: u32, now: Time) {
        self.handle_rivals(lost);
        self.is_back = true;
        self.rests_until = now.after(HOLD_BACK);
    }

    /// The lost races that the client's next acquire begins with, once this one has won.
    pub(crate) fn lost(&self) -> u32 {
        self.lost.saturating_sub(1)
    }

    /// When its rest ends.
    pub(crate) fn rests_until(&self) -> Time {
        self.rests_until
    }

    /// True if the next attempt asks one node first, and the others once that one has granted.
    pub(crate) fn asks_one_first(&self) -> bool {
        self.is_back || self.is_pushed && self.lost > 0
    }

    /// The nodes that reported the key deleted since the last attempt began.
    pub(crate) fn freed(&self) -> NodeSet {
        self.freed
    }

    /// Only `node` received the attempt, and had refused it by `now`. It pushes when the key is deleted.
    pub(crate) fn handle_held(&mut self, node: NodeId, quorum: Quorum, now: Time, random: u64) {
        self.watched = Some(node);
        self.handle_refusal(Free::default(), quorum, now, random);
    }

    /// The attempt has ended.
    pub(crate) fn handle_end(&mut self) {
        self.attempt_until = None;
    }

    /// The attempt was refused at `now`. If a quorum is free by what came in meanwhile, another is worth while.
    pub(crate) fn handle_refusal(&mut self, free: Free, quorum: Quorum, now: Time, random: u64) {
        let is_race = std::mem::take(&mut self.is_race);
        let is_back = std::mem::take(&mut self.is_back);
        if is_race {
            self.lost = MAX_LOST.min(self.lost + LOST_RACE);
        }
        if is_race || is_back && self.lost >= CROWD {
            let longest = REST * (1 << (self.lost / LOST_RACE));
            self.rests_until = now.after(draw(Duration::ZERO, longest, random));
        }
        if let Some(at) = self.worth_while_at(free, quorum, now) {
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
    /// way has gone.
    pub(crate) fn worth_while_at(&mut self, free: Free, quorum: Quorum, now: Time) -> Option<Time> {
        let is_watched_free = self.watched.is_some_and(|node| self.freed.contains(node));
        let is_free = is_watched_free || quorum.reached(free.nodes.union(self.freed).len());
        let at = now.max(self.rests_until).max(free.from);
        if !is_free || self.try_at.is_some_and(|known| known <= at) {
            return None;
        }
        (self.is_pushed, self.is_race) = (true, self.rests_until <= now);
        Some(at)
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

#[cfg(test)]
#[path = "waiting_tests.rs"]
mod tests;
