//! One waiting acquire: whether it may compete for the lock, when it has a reason to try again, and what happens if its
//! future is not polled.
//!
//! States:
//!
//! - **queued**: other waiters of this process are before it;
//! - **first**: it may compete;
//! - **skipped**: it was first, had no attempt under way and was not polled. It is in no queue. When it is
//!   polled, it gets its old place back;
//! - **given up**: it was first and was not polled, and what its attempt may have won was released. It is in no queue.
//!   When it is polled, it enters the queue at the end.
//!
//! Events:
//!
//! - [`Waiting::handle_turn`]: it is now first;
//! - [`Waiting::handle_wake`], [`Waiting::handle_poll`]: its future was woken, or polled;
//! - [`Waiting::handle_begin`], [`Waiting::handle_end`]: an attempt begins, or ends;
//! - [`Waiting::handle_refusal`]: the attempt was refused. If a quorum has become free since, it tries again soon;
//! - [`Waiting::handle_freed`]: a node has no conflicting keys any more;
//! - [`Waiting::schedule_try`]: there is a reason to try again at a given time;
//! - [`Waiting::handle_rivals`]: other clients compete for the lock;
//! - [`Waiting::handle_single_refusal`]: the first node has refused, and no other node received the attempt;
//! - [`Waiting::suspend`]: takes the turn from a waiter that is not polled;
//! - [`Waiting::next_turn`]: the future is polled. Returns whether it may compete, or where it has to queue.
//!
//! Queries: [`Waiting::idle_action`] is how to treat a waiter that is not polled. [`Waiting::try_at`] is when it
//! next has a reason to try. [`Waiting::next_useful_try`] checks whether enough nodes are free for an attempt.
//! [`Waiting::asks_one_first`] is whether the next attempt asks one node before the others.
//!
//! Clients that receive the same push compete. Each client that loses such a race rests for a random time before it
//! reacts to a push again. The longest rest doubles with each lost race, so that few of many waiters compete for each
//! release. A client that acquires the lock again begins with nearly the same rest. Otherwise two clients would take
//! turns while the others rest. A waiter that has lost a race asks one node first: that node grants only one of them.

use super::freed::FreeNodes;
use super::quorum::{NodeId, NodeSet, Quorum};
use super::retry::random_between;
use super::validity::Time;
use std::time::Duration;

/// After the first lost race the longest rest is twice this. It doubles with each further one.
const BASE_REST: Duration = Duration::from_micros(3_500);

/// A lost race adds this to [`Waiting::lost`]. A won race takes away 1, so that clients which win by chance do not soon
/// compete more often than others.
const LOST_RACE: u32 = 4;

/// Upper limit of [`Waiting::lost`], and so of the longest rest.
const MAX_LOST: u32 = 6 * LOST_RACE;

/// From this value of [`Waiting::lost`] on, a returning client that is refused rests as after a lost race.
const CROWD: u32 = 4 * LOST_RACE;

/// How long a client that acquires a contended lock again holds back. Other waiters receive the push of its release
/// later than it receives its own reply, so without a pause they would hardly ever win.
const HOLD_BACK: Duration = Duration::from_millis(1);

/// How long a woken future may stay unpolled before the next waiter in the queue may go first. If it is polled after
/// all, the two may collide, which is harmless.
const SKIP_AFTER: Duration = Duration::from_millis(100);

/// How long an unpolled future may keep what its attempt has won while other waiters of this process want it. Long
/// enough for a `select!` whose other branches are slow, and which polls its acquire only from time to time.
const UNPOLLED_HOLD_LIMIT: Duration = Duration::from_secs(2);

/// State of one acquire that may wait.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// The end of the acquire's wait.
    deadline: Time,
    phase: Phase,
    /// End of the validity that the current attempt can win, if there is an attempt.
    attempt_until: Option<Time>,
    /// When the future was woken, if it was not polled since.
    woken_at: Option<Time>,
    /// When there is a reason to try again.
    try_at: Option<Time>,
    /// Nodes that reported the key deleted, since the last attempt began.
    freed: NodeSet,
    /// Lost races (each adds [`LOST_RACE`]) minus won races. A race is an attempt that a push caused at once.
    lost: u32,
    /// End of the rest after the last lost race. Pushes before this time cause no attempt until it ends.
    rests_until: Time,
    /// True before the first attempt, if others competed for the lock when this client used it last.
    is_returning: bool,
    /// True if a push caused the next attempt.
    is_pushed: bool,
    /// True if a push causes the next attempt at once, and not after a rest.
    is_race: bool,
    /// The only node that received the last attempt. It refused, and pushes when the key is deleted.
    watched: Option<NodeId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Queued,
    First,
    Skipped,
    GivenUp,
}

/// The treatment of a waiter that is not polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdleAction {
    /// It has no attempt under way: let the waiters behind it go first.
    Skip,
    /// Its attempt can no longer be used: release what it holds.
    Release,
    /// Release what its attempt holds if other waiters of this process want it.
    ReleaseIfWanted,
}

/// The place of a waiter that is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It may compete.
    Compete,
    /// It has to wait until it is first.
    Wait,
    /// It has to enter the queue again, at its old place or at the end.
    Requeue { at_end: bool },
}

impl Waiting {
    /// A queued waiter.
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
            is_returning: false,
            is_pushed: false,
            is_race: false,
            watched: None,
        }
    }

    pub(crate) fn is_queued(&self) -> bool {
        self.phase == Phase::Queued
    }

    pub(crate) fn is_first(&self) -> bool {
        self.phase == Phase::First
    }

    /// No other waiter is before it.
    pub(crate) fn handle_turn(&mut self) {
        self.phase = Phase::First;
    }

    /// It was moved to the queue of another key. It has no attempt under way.
    pub(crate) fn handle_requeued(&mut self) {
        self.phase = Phase::Queued;
    }

    pub(crate) fn handle_wake(&mut self, now: Time) {
        self.woken_at.get_or_insert(now);
    }

    pub(crate) fn handle_poll(&mut self) {
        self.woken_at = None;
    }

    /// An attempt begins. From `valid_until` on it cannot be used.
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

    /// Like [`handle_rivals`](Self::handle_rivals), for a client that used the lock just before `now`: it holds back.
    pub(crate) fn handle_return(&mut self, lost: u32, now: Time) {
        self.handle_rivals(lost);
        self.is_returning = true;
        self.rests_until = now.after(HOLD_BACK);
    }

    /// Lost races that the client's next acquire begins with, after this one has won.
    pub(crate) fn lost(&self) -> u32 {
        self.lost.saturating_sub(1)
    }

    pub(crate) fn rests_until(&self) -> Time {
        self.rests_until
    }

    /// True if the next attempt asks one node first, and the others once that one has granted.
    pub(crate) fn asks_one_first(&self) -> bool {
        self.is_returning || self.is_pushed && self.lost > 0
    }

    /// The nodes that reported the key deleted since the last attempt began.
    pub(crate) fn freed(&self) -> NodeSet {
        self.freed
    }

    /// Only `node` received the attempt. It has refused, and pushes when the key is deleted.
    pub(crate) fn handle_single_refusal(
        &mut self,
        node: NodeId,
        quorum: Quorum,
        now: Time,
        random: u64,
    ) {
        self.watched = Some(node);
        self.handle_refusal(FreeNodes::default(), quorum, now, random);
    }

    pub(crate) fn handle_end(&mut self) {
        self.attempt_until = None;
    }

    /// The attempt was refused. If a quorum has become free since it began, schedules another one.
    pub(crate) fn handle_refusal(
        &mut self,
        free: FreeNodes,
        quorum: Quorum,
        now: Time,
        random: u64,
    ) {
        let is_race = std::mem::take(&mut self.is_race);
        let is_returning = std::mem::take(&mut self.is_returning);
        if is_race {
            self.lost = MAX_LOST.min(self.lost + LOST_RACE);
        }
        if is_race || is_returning && self.lost >= CROWD {
            let longest = BASE_REST * (1 << (self.lost / LOST_RACE));
            self.rests_until = now.after(random_between(Duration::ZERO, longest, random));
        }
        if let Some(at) = self.next_useful_try(free, quorum, now) {
            self.schedule_try(at);
        }
    }

    /// There is a reason to try again at `at`.
    pub(crate) fn schedule_try(&mut self, at: Time) {
        self.try_at = Some(self.try_at.map_or(at, |known| known.min(at)));
    }

    /// `node` has no conflicting keys any more.
    pub(crate) fn handle_freed(&mut self, node: NodeId) {
        self.freed.insert(node);
    }

    /// When another attempt is worth while: once a quorum is known to be free. `None` if it is not, or if one is due as
    /// early anyway. `free` are the nodes that granted the last attempt, and those that have no conflicting key any
    /// more.
    pub(crate) fn next_useful_try(
        &mut self,
        free: FreeNodes,
        quorum: Quorum,
        now: Time,
    ) -> Option<Time> {
        let is_watched_free = self.watched.is_some_and(|node| self.freed.contains(node));
        let is_free = is_watched_free || quorum.reached(free.nodes.union(self.freed).len());
        let at = now.max(self.rests_until).max(free.from);
        if !is_free || self.try_at.is_some_and(|known| known <= at) {
            return None;
        }
        (self.is_pushed, self.is_race) = (true, self.rests_until <= now);
        Some(at)
    }

    /// When it next has a reason to try. At once, if its turn was taken away.
    pub(crate) fn try_at(&self) -> Option<Time> {
        match self.phase {
            Phase::Skipped | Phase::GivenUp => Some(Time::default()),
            Phase::Queued | Phase::First => self.try_at,
        }
    }

    /// How to treat it at `now`. `None` unless it is first, was woken, and was not polled since.
    pub(crate) fn idle_action(&self, now: Time) -> Option<IdleAction> {
        let idle = self.idle(now).filter(|idle| *idle >= SKIP_AFTER)?;
        match self.attempt_until {
            None => Some(IdleAction::Skip),
            Some(until) if now >= until || now >= self.deadline => Some(IdleAction::Release),
            Some(_) => (idle >= UNPOLLED_HOLD_LIMIT).then_some(IdleAction::ReleaseIfWanted),
        }
    }

    /// Takes its turn away, unless it was polled recently. Returns false if it was.
    pub(crate) fn suspend(&mut self, now: Time) -> bool {
        let is_idle = self.idle(now).is_some_and(|idle| idle >= SKIP_AFTER);
        if is_idle {
            self.give_up();
        }
        is_idle
    }

    /// Takes its turn away, even if it was polled.
    pub(crate) fn give_up(&mut self) {
        let had_attempt = self.attempt_until.take().is_some();
        self.phase = if had_attempt { Phase::GivenUp } else { Phase::Skipped };
    }

    /// Its future is polled. Returns whether it may compete, or where it has to queue.
    pub(crate) fn next_turn(&mut self) -> Turn {
        match self.phase {
            Phase::First => Turn::Compete,
            Phase::Queued => Turn::Wait,
            // It had its turn, and gets it back.
            Phase::Skipped => {
                self.phase = Phase::First;
                Turn::Requeue { at_end: false }
            }
            Phase::GivenUp => {
                self.phase = Phase::Queued;
                Turn::Requeue { at_end: true }
            }
        }
    }

    /// How long it has been first and woken without being polled.
    fn idle(&self, now: Time) -> Option<Duration> {
        let woken_at = self.woken_at.filter(|_| self.is_first())?;
        Some(now.since(woken_at))
    }
}

#[cfg(test)]
#[path = "waiting_tests.rs"]
mod tests;
