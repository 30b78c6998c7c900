//! Passes a lock that this client has released to the client's next waiter.

use super::claim::Claim;
use super::queue::{Queue, Votes, remove_if_over};
use super::slots::AcquireId;
use super::waiting::WaitQueues;
use crate::protocol::Time;
use crate::wire::Key;
use std::collections::BTreeSet;
use std::collections::hash_map::Entry;

/// The end of a lease of this client.
pub(super) struct LocalRelease<'a> {
    /// If an acquire of any one of several keys created the lease: the queue in which that acquire waited.
    any_of: Option<&'a Key>,
    /// When the lease's keys become free.
    free_at: Time,
    /// Whether another client tried to acquire one of the keys.
    has_rivals: bool,
}

impl<'a> LocalRelease<'a> {
    pub(super) fn new(claim: &Claim, any_of: Option<&'a Key>, free_at: Time) -> Self {
        Self { any_of, free_at, has_rivals: claim.has_rivals() }
    }
}

impl WaitQueues {
    /// Handles the end of this client's lease on `key`. The lease's releases must already be submitted.
    pub(super) fn handle_release(
        &mut self,
        key: &Key,
        release: &LocalRelease<'_>,
        votes: &Votes,
        now: Time,
        ready: &mut Vec<AcquireId>,
    ) {
        self.sets.handle_release(key, release.free_at);
        self.pass_turn(key, None, release, now, ready);
        if release.any_of.is_some() || !self.watchers.is_empty() {
            self.notify_watchers(key, release, now, ready);
        }
        self.notify_sets(key, votes, now, ready);
    }

    /// Notifies the acquires that need any one of several keys, and the readers.
    fn notify_watchers(
        &mut self,
        key: &Key,
        release: &LocalRelease<'_>,
        now: Time,
        ready: &mut Vec<AcquireId>,
    ) {
        let queue = |id: AcquireId| Some(self.waiters.get(id)?.queue.as_ref()?.0.clone());
        let watching = self.watchers.of(key).filter_map(queue);
        let queues: BTreeSet<_> = watching.chain(release.any_of.cloned()).collect();
        for queue in &queues {
            if release.free_at <= now {
                self.pass_turn(queue, Some(key), release, now, ready);
            } else if let Some(head) = self.queues.get(queue).and_then(Queue::head) {
                // During the cool-down of this key, the acquire can get another key, so it is not delayed.
                self.schedule_try(head, release.free_at);
                self.set_freed_key(head, key);
                ready.push(head);
            }
        }
        let readers = self
            .watchers
            .of(key)
            .filter(|id| self.waiters.get(*id).is_some_and(|waiter| waiter.queue.is_none()));
        for reader in readers.collect::<Vec<_>>() {
            self.schedule_try(reader, release.free_at);
            ready.push(reader);
        }
    }

    /// Lets the head of the queue `name` try to acquire a lock that this client has released. In a queue of acquires
    /// that need any one of several keys, `freed` is the released key.
    fn pass_turn(
        &mut self,
        name: &Key,
        freed: Option<&Key>,
        release: &LocalRelease<'_>,
        now: Time,
        ready: &mut Vec<AcquireId>,
    ) {
        let at = release.free_at;
        if release.has_rivals {
            self.queues.entry(name.clone()).or_default().rivals_at = Some(now);
        }
        if let Entry::Occupied(mut entry) = self.queues.entry(name.clone()) {
            let queue = entry.get_mut();
            let mut from = match freed {
                Some(_) => queue.turns.handle_release_of_one(at),
                None => queue.turns.handle_release(at),
            };
            if let Some(acquire) = queue.head()
                && let Some(waiter) = self.waiters.get_mut(acquire)
            {
                if from > at {
                    from = from.after(waiter.waiting.handle_yield());
                }
                if let Some((any, key)) = waiter.any.as_mut().zip(freed) {
                    any.freed.insert(key);
                }
                waiter.waiting.delay_first_try(from);
                waiter.waiting.schedule_try(from);
                ready.push(acquire);
            }
            remove_if_over(entry, &mut self.remembered, now);
        }
    }
}
