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
//! - [`Waiting::handle_holder`]: a node that refuses the attempt reports which client holds the lock;
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
//! Clients that receive the same push compete; [`Contention`] has the rules for that. A waiter that has lost a race asks
//! one node first: that node grants only one of the waiters.

use super::contention::{ClientId, Contention};
use super::freed::FreeNodes;
use super::quorum::{NodeId, NodeSet, Quorum};
use super::validity::Time;
use std::time::Duration;

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
    /// A race is an attempt that a push caused at once.
    contention: Contention,
    /// End of the rest after the last lost race. Pushes before this time cause no attempt until it ends.
    rests_until: Time,
    /// True if a push caused the next attempt.
    is_pushed: bool,
    /// The cause of the next attempt.
    trigger: Trigger,
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

/// The cause of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trigger {
    /// A push, at once: a race.
    Push,
    /// A push, after the time that is left to clients which had no turn for longer.
    LatePush,
    /// A turn of the same client, after which it held back.
    Return,
    /// A rest, or a timer.
    #[default]
    Other,
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
            contention: Contention::default(),
            rests_until: Time::default(),
            is_pushed: false,
            trigger: Trigger::Other,
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

    /// Other clients compete for the lock. `contention` is [`contention`](Self::contention) of this client's previous
    /// acquire.
    pub(crate) fn handle_rivals(&mut self, contention: Contention) {
        self.contention = contention;
        self.contention.handle_rivals();
    }

    /// Like [`handle_rivals`](Self::handle_rivals), for a client that used the lock just before `now`: it holds back.
    pub(crate) fn handle_return(&mut self, contention: Contention, now: Time) {
        self.handle_rivals(contention);
        self.trigger = Trigger::Return;
        self.rests_until = now.after(self.contention.hold_back());
    }

    /// This client has had several turns in a row, and lets other clients go first. Returns how long they may take to
    /// react.
    pub(crate) fn handle_yield(&mut self) -> Duration {
        self.trigger = Trigger::Return;
        self.contention.reaction()
    }

    /// The attempt was won.
    pub(crate) fn handle_win(&mut self) {
        self.contention.handle_win();
    }

    /// State that the client's next acquire inherits.
    pub(crate) fn contention(&self) -> Contention {
        self.contention
    }

    pub(crate) fn rests_until(&self) -> Time {
        self.rests_until
    }

    /// True if the next attempt asks one node first, and the others once that one has granted.
    pub(crate) fn asks_one_first(&self) -> bool {
        self.trigger == Trigger::Return || self.is_pushed && self.contention.has_rivals()
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

    /// The attempt is refused. `holder` is the client that holds the lock, if the nodes report one.
    /// [`handle_refusal`](Self::handle_refusal) follows.
    pub(crate) fn handle_holder(&mut self, holder: Option<ClientId>) {
        self.contention.handle_holder(holder);
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
        let trigger = std::mem::take(&mut self.trigger);
        let is_lost = trigger == Trigger::Push && self.contention.handle_lost_race();
        if is_lost || trigger != Trigger::Other && self.contention.rests() {
            self.rests_until = now.after(self.contention.rest(random));
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
        let reaction = self.contention.reaction();
        let at = now.after(reaction).max(self.rests_until).max(free.from);
        if !is_free || self.try_at.is_some_and(|known| known <= at) {
            return None;
        }
        self.is_pushed = true;
        self.trigger = match self.rests_until {
            until if until > now => Trigger::Other,
            _ if reaction.is_zero() => Trigger::Push,
            _ => Trigger::LatePush,
        };
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
