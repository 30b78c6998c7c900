//! One waiting acquire: whether it may compete for the lock, and when it should try again.
//!
//! Report the position of the acquire in the queue of waiters with [`Waiting::handle_turn`] and
//! [`Waiting::handle_requeued`]. Call [`Waiting::handle_begin`] when an attempt begins. If nodes refuse the attempt,
//! call [`Waiting::handle_holder`] with the client that holds the lock. Once the attempt is refused, call
//! [`Waiting::handle_refusal`]. If a quorum has become free since the attempt began, the acquire then tries again soon.
//! If only one node received the attempt, call [`Waiting::handle_single_refusal`] instead.
//!
//! Report nodes that no longer have conflicting keys with [`Waiting::handle_freed`], and other clients that compete for
//! the lock with [`Waiting::handle_rivals`]. [`Waiting::schedule_try`] requests a try at a given time.
//!
//! [`Waiting::try_at`] returns the time of the next try. [`Waiting::next_useful_try`] checks whether enough nodes are
//! free for an attempt. [`Waiting::asks_one_first`] returns true if the next attempt asks one node before the others.
//!
//! Clients that receive the same push compete under the rules of [`Contention`]. A waiter that has lost a race asks one
//! node first, because that node grants the lock to only one of the waiters.

use super::contention::{ClientId, Contention};
use super::quorum::{NodeId, NodeSet, Quorum};
use super::release_log::FreeNodes;
use super::validity::Time;
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Waiting {
    is_first: bool,
    try_at: Option<Time>,
    /// The nodes that have reported the deletion of the key since the last attempt began.
    freed: NodeSet,
    contention: Contention,
    /// When the rest after the last lost race ends. A push during the rest causes an attempt only at this time.
    rests_until: Time,
    /// The earliest start of the first attempt, if this client holds the lock or has just released it.
    delayed_until: Time,
    is_pushed: bool,
    trigger: Trigger,
    /// Whether a reader waits. Readers do not compete with each other.
    is_reader: bool,
    /// The only node contacted in the last attempt. It refused, and will notify the client when the key is deleted.
    watched: Option<NodeId>,
}

/// The event that caused an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trigger {
    /// A push to which the client reacted at once. The attempt is a race with other clients.
    Push,
    /// A push to which the client reacted after a delay, so that clients whose last turn is longer ago go first.
    LatePush,
    /// The end of this client's own turn. The client waited before the attempt, so that other clients go first.
    Return,
    /// The end of a rest after a lost race, or a timer.
    #[default]
    Other,
}

impl Waiting {
    pub(crate) fn of_reader() -> Self {
        Self { is_reader: true, ..Self::default() }
    }

    pub(crate) fn is_first(&self) -> bool {
        self.is_first
    }

    pub(crate) fn handle_turn(&mut self) {
        self.is_first = true;
    }

    /// Records that the acquire was moved to the queue of another key, where it is not first. Do not call this method
    /// during an attempt.
    pub(crate) fn handle_requeued(&mut self) {
        self.is_first = false;
    }

    /// Records that an attempt begins, and discards the reports about the previous attempt.
    pub(crate) fn handle_begin(&mut self) {
        self.freed = NodeSet::default();
        (self.try_at, self.watched) = (None, None);
        self.is_pushed = false;
    }

    /// Records that other clients compete for the lock. `contention` is the knowledge that this client's previous
    /// acquire has gathered ([`contention`](Self::contention)).
    pub(crate) fn handle_rivals(&mut self, contention: Contention) {
        self.contention = contention;
        self.contention.handle_rivals();
    }

    /// Records that other clients compete for the lock, and that this client used the lock just before `now`. The
    /// acquire waits briefly, so that the other clients go first. `contention` is used as in
    /// [`handle_rivals`](Self::handle_rivals).
    pub(crate) fn handle_return(&mut self, contention: Contention, now: Time) {
        self.handle_rivals(contention);
        self.trigger = Trigger::Return;
        self.rests_until = now.after(self.contention.delay_after_release());
    }

    /// Records that this client pauses after several turns in a row, so that other clients go first. Returns the
    /// additional time to pause, because other clients may delay their reaction.
    pub(crate) fn handle_yield(&mut self) -> Duration {
        self.trigger = Trigger::Return;
        self.contention.reaction()
    }

    pub(crate) fn handle_win(&mut self) {
        self.contention.handle_win();
    }

    /// Delays the first attempt to `at`, because until then the lock is probably still held by another caller of this
    /// client.
    pub(crate) fn delay_first_try(&mut self, at: Time) {
        self.delayed_until = at;
    }

    /// Returns the knowledge about competing clients, which the client's next acquire inherits.
    pub(crate) fn contention(&self) -> Contention {
        self.contention
    }

    /// Returns the time before which the acquire must not start its first attempt.
    pub(crate) fn first_try_at(&self) -> Time {
        self.rests_until.max(self.delayed_until)
    }

    /// Returns true if the next attempt is sent to one node first. The other nodes receive the attempt once that node
    /// has granted it.
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

    /// Records which client holds the lock. `holder` is `None` if no refusing node reported a client. The caller must
    /// then call [`handle_refusal`](Self::handle_refusal).
    pub(crate) fn handle_holder(&mut self, holder: Option<ClientId>) {
        self.contention.handle_holder(holder);
    }

    /// Records that readers hold the lock. Used like [`handle_holder`](Self::handle_holder).
    pub(crate) fn handle_readers(&mut self) {
        self.contention.handle_readers();
    }

    /// Records one of the clients that hold the locks, for an acquire of any one of several. Used like
    /// [`handle_holder`](Self::handle_holder).
    pub(crate) fn handle_one_of_several_holders(&mut self, holder: Option<ClientId>) {
        self.contention.handle_one_of_several_holders(holder);
    }

    /// Handles a refused attempt. If a quorum has become free since the attempt began, schedules another attempt.
    /// `free` is used as in [`next_useful_try`](Self::next_useful_try). `random` must be uniformly distributed.
    pub(crate) fn handle_refusal(
        &mut self,
        free: FreeNodes,
        quorum: Quorum,
        now: Time,
        random: u64,
    ) {
        let trigger = std::mem::take(&mut self.trigger);
        let is_push = trigger == Trigger::Push && !self.is_reader;
        let is_lost = is_push && self.contention.handle_lost_race();
        if is_lost || trigger != Trigger::Other && self.contention.rests_after_refusal() {
            self.rest_until(now.after(self.contention.rest_delay(random)));
        }
        if let Some(at) = self.next_useful_try(free, quorum, now) {
            self.schedule_try(at);
        }
    }

    /// Makes a push cause an attempt only at `until` or later.
    pub(crate) fn rest_until(&mut self, until: Time) {
        self.rests_until = self.rests_until.max(until);
    }

    /// Schedules a try at `at`, unless a try is already scheduled for an earlier time.
    pub(crate) fn schedule_try(&mut self, at: Time) {
        self.try_at = Some(self.try_at.map_or(at, |known| known.min(at)));
    }

    pub(crate) fn handle_freed(&mut self, node: NodeId) {
        self.freed.insert(node);
    }

    /// Returns the time at which another attempt becomes useful because a quorum is known to be free. Returns `None` if
    /// no quorum is free, or if an attempt is already scheduled for that time or earlier. `free` contains the nodes
    /// that granted the last attempt, and the nodes that no longer have a conflicting key.
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
