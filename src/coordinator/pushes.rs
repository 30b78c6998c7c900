//! Notifies waiting acquires of keys that were deleted or changed on a node.

use super::queue::{Queue, Votes};
use super::slots::AcquireId;
use super::waiting::WaitQueues;
use crate::protocol::{NodeId, Time};
use crate::wire::awaited_key;

impl WaitQueues {
    /// Handles the deletion or change of `key` on `node`. If `key` is `None`, any key may have changed.
    pub(super) fn handle_changed(
        &mut self,
        node: NodeId,
        key: Option<&[u8]>,
        votes: &Votes,
        now: Time,
        ready: &mut Vec<AcquireId>,
    ) {
        let Some(key) = key else {
            let heads = self.queues.values().filter_map(Queue::head);
            let unqueued = self.waiters.iter().filter(|(_, waiter)| waiter.queue.is_none());
            let mut all: Vec<_> = heads.chain(unqueued.map(|(acquire, _)| acquire)).collect();
            all.sort_unstable();
            for acquire in all {
                if let Some(waiter) = self.waiters.get_mut(acquire)
                    && let Some(any) = &mut waiter.any
                {
                    any.freed.may_be_any = true;
                }
                self.handle_freed(acquire, node);
                self.try_if_useful(acquire, votes, now, ready);
            }
            return;
        };
        self.sets.handle_freed(node, key);
        let key = awaited_key(key);
        for acquire in self.heads_waiting_for(key) {
            let Some(waiter) = self.waiters.get_mut(acquire) else { continue };
            let is_own = waiter.has_set(node, key, votes);
            if let Some(any) = waiter.any.as_mut().filter(|_| !is_own) {
                any.freed.insert(&key.into());
            }
            let queue = waiter.queue.as_ref().map(|(queue, _)| queue.clone());
            let needs_one = waiter.any.is_some();
            // [`Sets`] records the deletions for acquires of several keys.
            if !waiter.is_set() && !is_own {
                waiter.waiting.handle_freed(node);
            }
            if self.try_if_useful(acquire, votes, now, ready)
                && let Some(queue) = queue.and_then(|queue| self.queues.get_mut(&queue))
            {
                queue.rivals_at = Some(now);
                if needs_one {
                    queue.turns.handle_one_freed_by_others();
                } else {
                    queue.turns.handle_freed_by_others();
                }
            }
        }
        self.notify_sets(key, votes, now, ready);
    }

    fn handle_freed(&mut self, acquire: AcquireId, node: NodeId) {
        if let Some(waiter) = self.waiters.get_mut(acquire) {
            waiter.waiting.handle_freed(node);
        }
    }

    fn try_if_useful(
        &mut self,
        acquire: AcquireId,
        votes: &Votes,
        now: Time,
        ready: &mut Vec<AcquireId>,
    ) -> bool {
        let Some(at) = self.next_useful_try(acquire, votes, now) else { return false };
        self.schedule_try(acquire, at);
        ready.push(acquire);
        true
    }

    /// Returns the heads of the queues that wait for `key`.
    fn heads_waiting_for(&self, key: &[u8]) -> Vec<AcquireId> {
        let head = self.queues.get(key).and_then(Queue::head);
        let watchers = self.watchers.of(key);
        head.into_iter().chain(watchers).collect()
    }
}
