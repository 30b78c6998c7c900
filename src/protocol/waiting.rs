//! One waiting acquire: whether it may compete for the lock, and when it should try again.
//!
//! Events:
//!
//! - [`Waiting::handle_turn`], [`Waiting::handle_requeued`]: the acquire is now first in its queue, or in the queue of
//!   another key.
//! - [`Waiting::handle_begin`]: an attempt begins.
//! - [`Waiting::handle_holder`]: a node that refuses the attempt reports which client holds the lock.
//! - [`Waiting::handle_refusal`]: the attempt was refused. If a quorum has become free since it began, the acquire
//!   tries again soon.
//! - [`Waiting::handle_freed`]: a node no longer has conflicting keys.
//! - [`Waiting::schedule_try`]: a try is needed at a given time.
//! - [`Waiting::handle_rivals`]: other clients compete for the lock.
//! - [`Waiting::handle_single_refusal`]: the first node has refused, and no other node received the attempt.
//!
//! Queries: [`Waiting::try_at`] returns the time of the next try. [`Waiting::next_useful_try`] checks whether enough
//! nodes are free for an attempt. [`Waiting::asks_one_first`] returns whether the next attempt asks one node before the
//! others.
//!
//! Clients that receive the same push compete under the rules of [`Contention`]. A waiter that has lost a race asks one
//! node first, because that node grants the lock to only one of the waiters.

use super::contention::{ClientId, Contention};
use super::freed::FreeNodes;
use super::quorum::{NodeId, NodeSet, Quorum};
use super::validity::Time;
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Waiting {
    is_first: bool,
    try_at: Option<Time>,
    /// The nodes that have reported the deletion of the key since the last attempt began.
    freed: NodeSet,
    /// The knowledge about competing clients. An attempt that a push causes at once is a race.
    contention: Contention,
    /// The end of the rest after the last lost race. A push during the rest causes an attempt only when the rest ends.
    rests_until: Time,
    is_pushed: bool,
    trigger: Trigger,
    /// The only node that received the last attempt. The node refused, and will push the deletion of the key.
    watched: Option<NodeId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trigger {
    /// A push that causes the attempt at once: a race.
    Push,
    /// A push, after a delay that favours clients whose last turn is longer ago.
    LatePush,
    /// A turn of this client, after which the client held back.
    Return,
    /// The end of a rest, or a timer.
    #[default]
    Other,
}

impl Waiting {
    pub(crate) fn is_first(&self) -> bool {
        self.is_first
    }

    pub(crate) fn handle_turn(&mut self) {
        self.is_first = true;
    }

    /// Records that the acquire was moved to the queue of another key. No attempt may be under way.
    pub(crate) fn handle_requeued(&mut self) {
        self.is_first = false;
    }

    /// Records that an attempt begins. Reports about the previous attempt are discarded.
    pub(crate) fn handle_begin(&mut self) {
        self.freed = NodeSet::default();
        (self.try_at, self.watched) = (None, None);
        self.is_pushed = false;
    }

    /// Records that other clients compete for the lock. `contention` is the [`contention`](Self::contention) of this
    /// client's previous acquire.
    pub(crate) fn handle_rivals(&mut self, contention: Contention) {
        self.contention = contention;
        self.contention.handle_rivals();
    }

    /// Records rivals as [`handle_rivals`](Self::handle_rivals) does. This client used the lock just before `now`, so
    /// it also holds back.
    pub(crate) fn handle_return(&mut self, contention: Contention, now: Time) {
        self.handle_rivals(contention);
        self.trigger = Trigger::Return;
        self.rests_until = now.after(self.contention.hold_back());
    }

    /// Records that this client yields after several turns in a row. Returns how long other clients may take to react.
    pub(crate) fn handle_yield(&mut self) -> Duration {
        self.trigger = Trigger::Return;
        self.contention.reaction()
    }

    pub(crate) fn handle_win(&mut self) {
        self.contention.handle_win();
    }

    /// Returns the state that the client's next acquire inherits.
    pub(crate) fn contention(&self) -> Contention {
        self.contention
    }

    pub(crate) fn rests_until(&self) -> Time {
        self.rests_until
    }

    /// Returns true if the next attempt asks one node first, and the other nodes once that node has granted.
    pub(crate) fn asks_one_first(&self) -> bool {
        self.trigger == Trigger::Return || self.is_pushed && self.contention.has_rivals()
    }

    pub(crate) fn freed(&self) -> NodeSet {
        self.freed
    }

    /// Handles the refusal of an attempt that only `node` received. The node will push the deletion of the key.
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

    /// Records the client that holds the lock, if the nodes that refuse the attempt report one. The caller must then
    /// call [`handle_refusal`](Self::handle_refusal).
    pub(crate) fn handle_holder(&mut self, holder: Option<ClientId>) {
        self.contention.handle_holder(holder);
    }

    /// Handles a refused attempt. If a quorum has become free since the attempt began, another attempt is scheduled.
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

    /// Schedules a try at `at`, unless an earlier try is scheduled.
    pub(crate) fn schedule_try(&mut self, at: Time) {
        self.try_at = Some(self.try_at.map_or(at, |known| known.min(at)));
    }

    pub(crate) fn handle_freed(&mut self, node: NodeId) {
        self.freed.insert(node);
    }

    /// Returns when another attempt is useful because a quorum is known to be free. Returns `None` if no quorum is
    /// free, or if a try is already scheduled no later than that. `free` contains the nodes that granted the last
    /// attempt, and the nodes that no longer have a conflicting key.
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

    pub(crate) fn try_at(&self) -> Option<Time> {
        self.try_at
    }
}

#[cfg(test)]
#[path = "waiting_tests.rs"]
mod tests;
