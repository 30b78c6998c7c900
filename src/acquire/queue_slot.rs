//! A place in a queue.

use super::queue::Ticket;
use super::wait_queue::WaitQueues;
use super::waiter::{AttemptGuard, Waiter};
use crate::protocol::{NodeId, Time, Turn};
use crate::round::Tally;
use crate::wire::{Key, Keys};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

/// A place in a queue; given up when dropped. Who wants several locks stands in the queue of the one
/// that it was refused for, and in none before that.
pub(super) struct QueueSlot {
    queues: Arc<WaitQueues>,
    /// The key of the queue.
    key: Option<Key>,
    ticket: Ticket,
    /// What it wants together, if that is more than one lock, and when it joined.
    set: Option<(Keys, Ticket)>,
    pub(super) waiter: Arc<Waiter>,
}

impl QueueSlot {
    /// A place at the end of the queue for these keys, for an acquire that ends by `deadline`.
    pub(super) fn join(queues: &Arc<WaitQueues>, keys: &Keys, deadline: Time) -> Self {
        let key = (keys.len() == 1).then(|| keys.first().clone());
        let ticket = queues.next_ticket();
        let set = key.is_none().then(|| (keys.clone(), ticket));
        let joined = set.as_ref().map(|(_, joined)| *joined);
        let waiter = Arc::new(Waiter::new(queues.clock().clone(), deadline, joined));
        let slot = Self { queues: queues.clone(), key, ticket, set, waiter };
        slot.enter(false);
        slot
    }

    fn enter(&self, was_refused: bool) {
        self.queues.enter(self.key.as_ref(), self.ticket, &self.waiter, was_refused);
    }

    fn leave(&self) {
        self.queues.leave(self.key.as_deref(), self.ticket);
    }

    /// Resolves when it is this one's turn.
    pub(super) async fn turn(&mut self) {
        poll_fn(|_| {
            let at_end = match self.waiter.next_turn() {
                Turn::Compete => return Poll::Ready(()),
                Turn::Wait => return Poll::Pending,
                Turn::Requeue { at_end } => at_end,
            };
            if at_end {
                self.ticket = self.queues.next_ticket();
            }
            self.enter(false);
            if self.waiter.is_first() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// What the first in the queue saw last, for one whose time ended before its turn.
    pub(super) fn refused(&self) -> Option<Arc<Tally>> {
        self.queues.queues().by_key.get(self.key.as_ref()?)?.refused.clone()
    }

    /// Notes an attempt that begins.
    pub(super) fn begin(&self, attempt: AttemptGuard, tally: Arc<Tally>) {
        if let Some((keys, joined)) = &self.set {
            self.queues.queues().sets.handle_begin(keys, *joined);
        }
        self.waiter.begin(attempt, tally);
    }

    /// The attempt was won: whoever waits for one of several keys waits for its release.
    pub(super) fn handle_won(&self) {
        self.waiter.handle_win();
        if let Some((_, joined)) = &self.set {
            self.queues.queues().sets.hand_on(*joined);
        }
    }

    /// True while it may compete: it may have been set aside.
    pub(super) fn is_first(&self) -> bool {
        self.waiter.is_first()
    }

    /// What the attempt holds; `None` if it was given up because the future was not polled.
    pub(super) fn end(&self) -> Option<AttemptGuard> {
        self.waiter.end()
    }

    /// Notes that the attempt for `keys` was refused, and stands in the queue of the one that was in
    /// the way.
    pub(super) fn refuse(&mut self, tally: &Arc<Tally>, keys: &Keys) {
        let obstacle = tally.obstacle().and_then(|index| keys.get(index));
        if let Some(key) = obstacle.filter(|key| Some(*key) != self.key.as_ref()) {
            self.leave();
            self.key = Some(key.clone());
            self.waiter.handle_requeued();
            self.ticket = self.queues.next_ticket();
            self.enter(true);
        }
        self.queues.handle_refusal(&self.waiter);
        if let Some((_, joined)) = &self.set {
            self.queues.handle_set_refused(*joined, self.key.as_ref());
        }
        let Some(key) = &self.key else { return };
        if let Some(queue) = self.queues.queues().by_key.get_mut(key) {
            queue.refused = Some(tally.clone());
        }
    }

    /// Others were faster, as `node` says.
    pub(super) fn handle_single_refusal(&self, node: NodeId) {
        self.queues.handle_single_refusal(&self.waiter, node);
    }

    /// When something happened that makes a new attempt worth while; pending until it does.
    pub(super) fn poll_news(&self) -> Poll<Time> {
        // A node may name one of several keys after the attempt was refused.
        if self.set.is_some() && self.waiter.is_first() && self.waiter.hears_more() {
            self.queues.handle_obstacles(&self.waiter, self.key.as_ref());
        }
        self.waiter.try_at().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        // The round under way knows this waiter as the one to wake, and may outlive it: its claim
        // must be given up now, and before the next in the queue asks.
        self.waiter.dissolve();
        if let Some((_, joined)) = &self.set {
            self.queues.handle_set_over(*joined);
        }
        self.leave();
    }
}
