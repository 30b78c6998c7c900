//! One waiting acquire: whether it may compete for the lock, and when it has a reason to try again.
//!
//! Events:
//!
//! - [`Waiting::handle_turn`], [`Waiting::handle_requeued`]: it is now first, or in the queue of another key;
//! - [`Waiting::handle_begin`]: an attempt begins;
//! - [`Waiting::handle_holder`]: a node that refuses the attempt reports which client holds the lock;
//! - [`Waiting::handle_refusal`]: the attempt was refused. If a quorum has become free since, it tries again soon;
//! - [`Waiting::handle_freed`]: a node has no conflicting keys any more;
//! - [`Waiting::schedule_try`]: there is a reason to try again at a given time;
//! - [`Waiting::handle_rivals`]: other clients compete for the lock;
//! - [`Waiting::handle_single_refusal`]: the first node has refused, and no other node received the attempt.
//!
//! Queries: [`Waiting::try_at`] is when it next has a reason to try. [`Waiting::next_useful_try`] checks whether enough
//! nodes are free for an attempt. [`Waiting::asks_one_first`] is whether the next attempt asks one node before the
//! others.
//!
//! Clients that receive the same push compete; [`Contention`] has the rules for that. A waiter that has lost a race asks
//! one node first: that node grants only one of the waiters.

use super::contention::{ClientId, Contention};
use super::freed::FreeNodes;
use super::quorum::{NodeId, NodeSet, Quorum};
use super::validity::Time;
use std::time::Duration;

/// State of one acquire that may wait.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// True if no other waiter is before it.
    is_first: bool,
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

impl Waiting {
    pub(crate) fn is_first(&self) -> bool {
        self.is_first
    }

    /// No other waiter is before it.
    pub(crate) fn handle_turn(&mut self) {
        self.is_first = true;
    }

    /// It was moved to the queue of another key. It has no attempt under way.
    pub(crate) fn handle_requeued(&mut self) {
        self.is_first = false;
    }

    /// An attempt begins.
    pub(crate) fn handle_begin(&mut self) {
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

    /// When it next has a reason to try.
    pub(crate) fn try_at(&self) -> Option<Time> {
        self.try_at
    }
}

#[cfg(test)]
#[path = "waiting_tests.rs"]
mod tests;
