//! Those who wait for one key, in their order.

use super::waiter::Waiter;
use crate::protocol::{Contention, Time, Turns};
use crate::round::Tally;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// When somebody joined, beside others: who was first is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(pub(super) u64);

/// Those who are to be woken once the queues are not locked any more: a waker is somebody else's code,
/// and may come back here.
pub(super) type Woken = Vec<Arc<Waiter>>;

/// The same for those who may try at a time.
pub(super) type Told = Vec<(Arc<Waiter>, Time)>;

/// Tells them to try then.
pub(super) fn tell(told: Told) {
    for (waiter, at) in told {
        waiter.wake_for(at);
    }
}

/// For this long a client remembers that others compete for a lock, also while its own queue for it is empty.
const RIVALS_FOR: Duration = Duration::from_secs(1);

/// Those who wait for one key.
#[derive(Default)]
pub(super) struct Queue {
    waiters: BTreeMap<Ticket, Arc<Waiter>>,
    turns: Turns,
    /// The last attempt of a first in the queue that was refused.
    pub(super) refused: Option<Arc<Tally>>,
    /// When another client was last seen to compete for the lock.
    rivals_at: Option<Time>,
    /// State that the next waiter inherits.
    contention: Contention,
}

impl Queue {
    pub(super) fn first(&self) -> Option<&Arc<Waiter>> {
        self.waiters.values().next()
    }

    #[cfg(feature = "test-util")]
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn into_waiters(self) -> impl Iterator<Item = Arc<Waiter>> {
        self.waiters.into_values()
    }

    /// Those whose turn it is: the first, and others that were admitted before it.
    pub(super) fn competing(&self) -> impl Iterator<Item = (Ticket, &Arc<Waiter>)> {
        let waiters = self.waiters.iter().map(|(ticket, waiter)| (*ticket, waiter));
        waiters.take_while(|(_, waiter)| waiter.is_first())
    }

    /// True if somebody stands here besides the holder of `ticket`.
    pub(super) fn has_others(&self, ticket: Ticket) -> bool {
        self.waiters.len() > usize::from(self.waiters.contains_key(&ticket))
    }

    /// Whoever gets its turn by that is added to `woken`, to be woken without the lock.
    pub(super) fn insert(
        &mut self,
        ticket: Ticket,
        waiter: Arc<Waiter>,
        now: Time,
        woken: &mut Woken,
    ) {
        if self.waiters.is_empty() && self.has_rivals(now) {
            waiter.handle_return(self.contention, now);
        }
        self.waiters.insert(ticket, waiter);
        self.promote(woken);
    }

    /// As [`insert`](Self::insert).
    pub(super) fn remove(&mut self, ticket: Ticket, woken: &mut Woken) {
        let was_first = self.waiters.first_key_value().is_some_and(|(first, _)| *first == ticket);
        let removed = self.waiters.remove(&ticket);
        self.contention =
            removed.filter(|_| was_first).map_or(self.contention, |waiter| waiter.contention());
        // 1. The first is told that the lock is free, and does not move. 2. The next had been admitted
        // before, and is told of nothing. 3. It is the first now.
        woken.extend(self.first().filter(|first| was_first && first.is_first()).cloned());
        self.promote(woken);
    }

    /// Another client competes for the lock.
    pub(super) fn handle_rivals(&mut self, now: Time) {
        self.rivals_at = Some(now);
    }

    /// True if another client has just competed for the lock.
    pub(super) fn has_rivals(&self, now: Time) -> bool {
        self.rivals_at.is_some_and(|at| now.since(at) < RIVALS_FOR)
    }

    /// True if the queue is empty, and no other client has just competed for the lock.
    pub(super) fn is_over(&self, now: Time) -> bool {
        self.waiters.is_empty() && !self.has_rivals(now)
    }

    /// One whose turn it was did not move.
    pub(super) fn handle_skipped(&mut self) {
        self.turns.handle_skipped();
    }

    /// A lease of this process has ended, and the lock can be had from `at` on. Who may try, and when.
    pub(super) fn handle_release(&mut self, at: Time) -> Option<(Arc<Waiter>, Time)> {
        let mut from = self.turns.handle_release(at);
        let first = self.first()?;
        if from > at {
            from = from.after(first.handle_yield());
        }
        Some((first.clone(), from))
    }

    /// Another process has let go of the lock.
    pub(super) fn handle_freed_by_others(&mut self, now: Time) {
        self.handle_rivals(now);
        self.turns.handle_freed_by_others();
    }

    /// Gives the first in the queue their turn.
    fn promote(&self, woken: &mut Woken) {
        let admitted = self.waiters.values().take(self.turns.admitted());
        let promoted = admitted.filter(|waiter| waiter.take_turn());
        woken.extend(promoted.cloned().inspect(|waiter| {
            if self.rivals_at.is_some() {
                waiter.handle_rivals(self.contention);
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ClientId;
    use crate::time::Clock;

    #[test]
    fn next_waiters_of_a_client_begin_with_its_contention() {
        let clock = Clock::default();
        let waiters = [(); 3].map(|()| Arc::new(Waiter::new(clock.clone(), Time::END, None)));
        let (mut queue, mut woken, now) = (Queue::default(), Woken::new(), clock.now());
        let known = || waiters.each_ref().map(|waiter| waiter.contention());
        for (number, waiter) in (0..).zip(&waiters[..2]) {
            queue.insert(Ticket(number), waiter.clone(), now, &mut woken);
        }
        queue.handle_rivals(now);
        let mut contention = Contention::default();
        contention.handle_rivals();
        for number in 0..3 {
            contention.handle_holder(Some(ClientId(number)));
            contention.handle_lost_race();
        }
        waiters[0].handle_rivals(contention);
        assert_eq!(known(), [contention, Contention::default(), Contention::default()]);
        queue.remove(Ticket(0), &mut woken);
        assert_eq!(
            known(),
            [contention, contention, Contention::default()],
            "the next in the queue"
        );
        waiters[1].handle_win();
        contention.handle_win();
        queue.remove(Ticket(1), &mut woken);
        queue.insert(Ticket(2), waiters[2].clone(), now, &mut woken);
        assert_eq!(known()[1..], [contention; 2], "a client that returns");
    }
}
