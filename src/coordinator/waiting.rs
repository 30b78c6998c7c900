//! Queues of waiting acquires.
//!
//! The acquires for a key form a FIFO queue, and only the head of the queue contacts the nodes. Acquires of any one of
//! the same keys also form a queue. An acquire of several keys enters a queue only after its first attempt was refused;
//! see [`Sets`].
//!
//! Methods with a parameter `ready` add the acquires that can now continue to `ready`.

use super::queue::{Queue, Votes, Waiter, remove_if_over};
use super::rotation::{FreedKeys, MAX_CANDIDATES};
use super::sets::{Candidate, Sets};
use super::slots::{AcquireId, Acquires, RoundId, SlotMap};
use super::votes::VoteCounter;
use super::watchers::Watchers;
use crate::protocol::{FreeNodes, NodeId, NodeSet, Quorum, Time, Waiting};
use crate::wire::{Key, Keys};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Maximum delay between the deletion of a key and the attempt of the multi-key acquire that was notified. If the
/// acquire must wait longer, the next waiting acquire is notified as well.
const PROMPT: Duration = Duration::from_millis(5);

/// How long the next waiter for a key delays its first attempt after this client has acquired the key for another
/// caller. If that caller releases the key earlier, the attempt follows the release in the same write. An attempt
/// before the release would be refused.
const LOCAL_HOLD: Duration = Duration::from_millis(1);

/// How long an acquire of any one of many keys ignores pushes after a refused attempt. The next attempt tries all keys that
/// were freed or extended during this time. If 1,000 leases are renewed, one of the keys changes every few milliseconds.
const MANY_KEYS_REST: Duration = Duration::from_millis(20);

pub(super) struct WaitQueues {
    quorum: Quorum,
    pub(super) waiters: SlotMap<Acquires, Waiter>,
    pub(super) queues: HashMap<Key, Queue>,
    pub(super) sets: Sets,
    pub(super) watchers: Watchers<Acquires>,
    last_place: u64,
    /// Number of times that a waiting acquire was checked for a useful attempt. Used to test the cost of a release.
    pub(super) checks: u64,
    /// Empty queues that are kept because other clients compete for their keys, each with the time of the next check.
    pub(super) remembered: VecDeque<(Time, Key)>,
}

impl WaitQueues {
    pub(super) fn new(quorum: Quorum) -> Self {
        Self {
            quorum,
            waiters: SlotMap::new(),
            queues: HashMap::new(),
            sets: Sets::default(),
            watchers: Watchers::default(),
            last_place: 0,
            checks: 0,
            remembered: VecDeque::new(),
        }
    }

    /// Adds an acquire of all `keys`, or of any one of them if `any_of` names a queue for such acquires.
    pub(super) fn join(
        &mut self,
        acquire: AcquireId,
        keys: &Keys,
        any_of: Option<&Key>,
        now: Time,
    ) {
        self.forget_rivals(now);
        let waiter = Waiter {
            waiting: Waiting::default(),
            keys: keys.clone(),
            queue: None,
            votes: None,
            any: any_of.map(|_| Box::default()),
        };
        self.waiters.insert(acquire, waiter);
        if let Some(queue) = any_of.or((keys.len() == 1).then(|| keys.first())) {
            // The caller checks whether the acquire is first.
            self.enter(acquire, queue, now);
        } else if let Some(waiter) = self.waiters.get_mut(acquire) {
            waiter.waiting.handle_turn();
        }
    }

    /// Adds an acquire of a reader. Readers do not exclude each other, so they wait in no queue. Each reader watches its key,
    /// as an acquire of any one of several keys does.
    pub(super) fn join_readers(&mut self, acquire: AcquireId, keys: &Keys) {
        let mut waiting = Waiting::of_reader();
        waiting.handle_turn();
        let (queue, votes, any) = (None, None, Some(Box::default()));
        self.waiters.insert(acquire, Waiter { waiting, keys: keys.clone(), queue, votes, any });
    }

    fn enter(&mut self, acquire: AcquireId, key: &Key, now: Time) {
        let Some(waiter) = self.waiters.get_mut(acquire) else { return };
        self.last_place += 1;
        waiter.queue = Some((key.clone(), self.last_place));
        let queue = self.queues.entry(key.clone()).or_default();
        if queue.waiters.is_empty() && queue.has_rivals(now) {
            waiter.waiting.handle_return(queue.contention, now);
        }
        queue.waiters.insert(self.last_place, acquire);
        queue.promote(&mut self.waiters);
    }

    /// Removes the acquire from its queue. If another acquire becomes the head of the queue, adds that acquire to
    /// `ready`, and schedules its attempt for `next_at`.
    fn exit(&mut self, acquire: AcquireId, next_at: Time, now: Time, ready: &mut Vec<AcquireId>) {
        let Some(waiter) = self.waiters.get_mut(acquire) else { return };
        let Some((key, place)) = waiter.queue.take() else { return };
        let contention = waiter.waiting.contention();
        let Entry::Occupied(mut entry) = self.queues.entry(key) else { return };
        let queue = entry.get_mut();
        if queue.waiters.keys().next() == Some(&place) {
            queue.contention = contention;
        }
        queue.waiters.remove(&place);
        if let Some(head) = queue.promote(&mut self.waiters) {
            ready.push(head);
            if let Some(waiter) = self.waiters.get_mut(head) {
                waiter.waiting.delay_first_try(next_at);
                waiter.waiting.schedule_try(next_at);
            }
        }
        remove_if_over(entry, &mut self.remembered, now);
    }

    /// Removes empty queues that were kept because of competing clients, if no other client has competed for the key
    /// recently.
    fn forget_rivals(&mut self, now: Time) {
        while self.remembered.front().is_some_and(|(at, _)| *at <= now)
            && let Some((_, key)) = self.remembered.pop_front()
        {
            if let Entry::Occupied(mut entry) = self.queues.entry(key) {
                entry.get_mut().is_remembered = false;
                remove_if_over(entry, &mut self.remembered, now);
            }
        }
    }

    pub(super) fn leave(
        &mut self,
        acquire: AcquireId,
        votes: &Votes,
        now: Time,
        ready: &mut Vec<AcquireId>,
    ) {
        self.forget_rivals(now);
        self.exit(acquire, now, now, ready);
        self.watchers.remove(acquire);
        self.waiters.remove(acquire);
        for key in self.sets.remove(acquire) {
            self.notify_sets(&key, votes, now, ready);
        }
    }

    pub(super) fn set_freed_key(&mut self, acquire: AcquireId, key: &Key) {
        if let Some(any) = self.waiters.get_mut(acquire).and_then(|waiter| waiter.any.as_mut()) {
            any.freed.insert(key);
        }
    }

    /// Takes the keys that were freed since the previous rotation of an acquire of any one of several keys began.
    pub(super) fn take_freed_keys(&mut self, acquire: AcquireId) -> FreedKeys {
        let any = self.waiters.get_mut(acquire).and_then(|waiter| waiter.any.as_mut());
        any.map(|any| std::mem::take(&mut any.freed)).unwrap_or_default()
    }

    /// Handles the beginning of an attempt that tries `keys`. `is_continued` is true if it continues the previous
    /// attempt with other keys.
    pub(super) fn begin(
        &mut self,
        acquire: AcquireId,
        round: RoundId,
        keys: &Keys,
        is_continued: bool,
    ) {
        let Some(waiter) = self.waiters.get_mut(acquire) else { return };
        if !is_continued {
            waiter.waiting.handle_begin();
        }
        if let Some(any) = &mut waiter.any {
            any.tried = Some(keys.clone());
            self.watchers.add(acquire, keys);
        }
        waiter.votes = Some(round);
        if waiter.is_set() {
            self.sets.handle_begin(acquire, &waiter.keys);
        }
    }

    /// Records that the attempt of the acquire was granted. The caller must then call [`leave`](Self::leave).
    pub(super) fn handle_win(&mut self, acquire: AcquireId, now: Time, ready: &mut Vec<AcquireId>) {
        let Some(waiter) = self.waiters.get_mut(acquire) else { return };
        waiter.waiting.handle_win();
        let hold = if waiter.any.is_some() { Duration::ZERO } else { LOCAL_HOLD };
        self.exit(acquire, now.after(hold), now, ready);
        // Sets that want one of the keys now wait for its release, so none of the sets is notified.
        self.sets.pass_on(acquire);
    }

    /// Handles a refused attempt: moves the acquire to the queue of the key that conflicts on the largest number of
    /// nodes, and schedules the next attempt.
    pub(super) fn handle_refusal(
        &mut self,
        acquire: AcquireId,
        votes: &Votes,
        now: Time,
        random: u64,
        ready: &mut Vec<AcquireId>,
    ) {
        let Some(waiter) = self.waiters.get_mut(acquire) else { return };
        let conflict = waiter.main_conflict(votes);
        let queue = waiter.queue.as_ref().map(|(key, _)| key);
        if let Some(key) = conflict.filter(|key| Some(key) != queue) {
            self.exit(acquire, now, now, ready);
            if let Some(waiter) = self.waiters.get_mut(acquire) {
                waiter.waiting.handle_requeued();
            }
            // The acquire may become the head of its new queue immediately, which is no reason for another attempt.
            self.enter(acquire, &key, now);
        }
        let Some(waiter) = self.waiters.get_mut(acquire) else { return };
        waiter.handle_holder(votes);
        let free = FreeNodes { nodes: waiter.free(votes), ..FreeNodes::default() };
        waiter.waiting.handle_refusal(free, self.quorum, now, random);
        if waiter.any.is_some() && waiter.keys.len() > MAX_CANDIDATES {
            waiter.waiting.rest_until(now.after(MANY_KEYS_REST));
        }
        let (is_set, refused) = (waiter.is_set(), waiter.last_votes(votes).cloned().map(Arc::new));
        let queue = waiter.queue.as_ref().map(|(key, _)| key.clone());
        if let Some(queue) = queue.as_ref().and_then(|key| self.queues.get_mut(key)) {
            queue.refused = refused;
        }
        if is_set {
            // Another client holds the queue's key. The deletion of that key also notifies the next set, so the turn
            // for the key is not passed on here.
            let passed_on = self.sets.pass_on(acquire);
            for key in passed_on.into_iter().filter(|key| Some(key) != queue.as_ref()) {
                self.notify_sets(&key, votes, now, ready);
            }
            self.handle_conflicts(acquire, votes, now);
        }
    }

    /// Handles the refusal of an attempt that contacted only `node`, which will push the deletion of the key.
    pub(super) fn handle_single_refusal(
        &mut self,
        acquire: AcquireId,
        node: NodeId,
        votes: &Votes,
        now: Time,
        random: u64,
    ) {
        let Some(waiter) = self.waiters.get_mut(acquire) else { return };
        waiter.handle_holder(votes);
        waiter.votes = None;
        waiter.waiting.handle_single_refusal(node, self.quorum, now, random);
    }

    /// Makes a refused multi-key acquire wait for the deletion of all conflicting keys that nodes have reported so far.
    /// Returns true if enough nodes are already free for another attempt.
    pub(super) fn handle_conflicts(
        &mut self,
        acquire: AcquireId,
        votes: &Votes,
        now: Time,
    ) -> bool {
        let Some(waiter) = self.waiters.get(acquire).filter(|waiter| waiter.is_set()) else {
            return false;
        };
        if !waiter.waiting.is_first() {
            return false;
        }
        let queue = waiter.queue.as_ref().map(|(key, _)| key.clone());
        let conflicts = waiter.conflicts(votes);
        self.sets.watch(acquire, queue.as_ref(), &conflicts);
        let at = self.next_useful_try(acquire, votes, now);
        at.is_some_and(|at| self.schedule_try(acquire, at))
    }

    /// Returns the time at which another attempt becomes useful because a quorum is known to be free. Returns `None` if
    /// no quorum is free, or if an attempt is already scheduled for that time or earlier.
    pub(super) fn next_useful_try(
        &mut self,
        acquire: AcquireId,
        votes: &Votes,
        now: Time,
    ) -> Option<Time> {
        let waiter = self.waiters.get_mut(acquire)?;
        self.checks += 1;
        let known = waiter.free(votes);
        let freed = self.sets.free_nodes(acquire, &waiter.conflicts(votes));
        let free = FreeNodes { nodes: known.union(freed.nodes), ..freed };
        waiter.waiting.next_useful_try(free, self.quorum, now)
    }

    pub(super) fn schedule_try(&mut self, acquire: AcquireId, at: Time) -> bool {
        let Some(waiter) = self.waiters.get_mut(acquire) else { return false };
        waiter.waiting.schedule_try(at);
        true
    }

    /// Schedules attempts of the multi-key acquires that wait for the deleted `key`, longest-waiting acquire first.
    /// Stops at the first acquire that can try within [`PROMPT`]. Only that acquire may then try to get the key, until
    /// its attempt ends.
    pub(super) fn notify_sets(
        &mut self,
        key: &[u8],
        votes: &Votes,
        now: Time,
        ready: &mut Vec<AcquireId>,
    ) {
        while let Some(Candidate { acquire, from }) = self.sets.next_candidate(key) {
            let is_first = self.waiters.get(acquire).is_some_and(|it| it.waiting.is_first());
            let at = if is_first { self.next_useful_try(acquire, votes, now) } else { None };
            let Some(at) = at else { continue };
            self.schedule_try(acquire, at);
            ready.push(acquire);
            if at <= from.max(now).after(PROMPT) {
                self.sets.handle_notified(acquire, key);
                break;
            }
        }
    }

    pub(super) fn is_first(&self, acquire: AcquireId) -> bool {
        self.waiters.get(acquire).is_none_or(|waiter| waiter.waiting.is_first())
    }

    pub(super) fn try_at(&self, acquire: AcquireId) -> Option<Time> {
        self.waiters.get(acquire)?.waiting.try_at()
    }

    /// Returns the time before which the acquire must not start its first attempt, because this client holds the lock
    /// or held it last.
    pub(super) fn first_try_at(&self, acquire: AcquireId) -> Option<Time> {
        self.waiters.get(acquire).map(|waiter| waiter.waiting.first_try_at())
    }

    /// If the next attempt must contact a single node first, returns the nodes that have reported the deletion of the
    /// key. Returns `None` if the attempt contacts all nodes in parallel.
    pub(super) fn asks_one_of(&self, acquire: AcquireId) -> Option<NodeSet> {
        // For several keys, nodes can report different conflicts.
        let waiter = self.waiters.get(acquire).filter(|waiter| !waiter.is_set())?;
        waiter.waiting.asks_one_first().then(|| waiter.waiting.freed())
    }

    /// Returns the votes of the last refused attempt by the head of the acquire's queue.
    pub(super) fn refused(&self, acquire: AcquireId) -> Option<&Arc<VoteCounter>> {
        let (key, _) = self.waiters.get(acquire)?.queue.as_ref()?;
        self.queues.get(key)?.refused.as_ref()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.iter().next().is_none()
            && self.sets.is_empty()
            && self.watchers.is_empty()
            && self.queues.values().all(|queue| queue.waiters.is_empty())
    }
}
