//! Waiting acquires, and the queue of the acquires that wait for the same key.

use super::rotation::FreedKeys;
use super::slots::{AcquireId, Acquires, RoundId, Rounds, SlotMap, Slots};
use super::votes::VoteCounter;
use crate::protocol::{Contention, NodeId, NodeSet, Time, Turns, Waiting};
use crate::wire::{Key, Keys, Value};
use std::collections::hash_map::OccupiedEntry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How long a client remembers that other clients compete for a lock, even if no acquire of this client waits for the
/// lock.
const RIVALS_FOR: Duration = Duration::from_secs(1);

pub(super) type Votes = Slots<Rounds, VoteCounter>;

pub(super) struct Waiter {
    pub(super) waiting: Waiting,
    pub(super) keys: Keys,
    /// The name of the queue in which the acquire waits (its key, or the name for any one of its keys), and the
    /// acquire's sequence number in that queue. `None` if the acquire is in no queue.
    pub(super) queue: Option<(Key, u64)>,
    pub(super) votes: Option<RoundId>,
    /// If the acquire needs only one of its keys: the state of that wait.
    pub(super) any: Option<Box<AnyOf>>,
}

/// The wait of an acquire for any one of several keys.
#[derive(Default)]
pub(super) struct AnyOf {
    pub(super) freed: FreedKeys,
    /// The keys of the last attempt.
    pub(super) tried: Option<Keys>,
}

#[derive(Default)]
pub(super) struct Queue {
    pub(super) waiters: BTreeMap<u64, AcquireId>,
    pub(super) turns: Turns,
    /// The votes of the last refused attempt by the head of the queue. If another acquire times out in the queue, its
    /// error reports these votes.
    pub(super) refused: Option<Arc<VoteCounter>>,
    pub(super) rivals_at: Option<Time>,
    /// The previous head's record of competing clients, which the next head inherits.
    pub(super) contention: Contention,
    pub(super) is_remembered: bool,
}

impl Waiter {
    pub(super) fn is_set(&self) -> bool {
        self.keys.len() > 1 && self.any.is_none()
    }

    pub(super) fn last_votes<'a>(&self, votes: &'a Votes) -> Option<&'a VoteCounter> {
        votes.get(self.votes?)
    }

    /// Records which client has caused the refusal of the last attempt: the client that all nodes report. An acquire
    /// that needs only one of its keys records the client that most nodes report.
    pub(super) fn handle_holder(&mut self, votes: &Votes) {
        let holders = self.last_votes(votes).into_iter().flat_map(VoteCounter::holders);
        let holders: Vec<_> = holders.collect();
        if holders.iter().any(|holder| holder.is_readers()) {
            return self.waiting.handle_readers();
        }
        let clients: Vec<_> = holders.into_iter().map(Value::client).collect();
        let count = |client| clients.iter().filter(|other| **other == client).count();
        let client = clients.iter().copied().max_by_key(|client| count(*client)).flatten();
        if self.any.is_some() {
            self.waiting.handle_one_of_several_holders(client);
        } else {
            let is_sole = count(client) == clients.len();
            self.waiting.handle_holder(client.filter(|_| is_sole));
        }
    }

    /// Returns the key that conflicts on the most nodes, for an acquire that needs all its keys.
    pub(super) fn main_conflict(&self, votes: &Votes) -> Option<Key> {
        let votes = self.last_votes(votes).filter(|_| self.any.is_none())?;
        self.keys.get(votes.main_conflict()?).cloned()
    }

    /// Returns true if `node` has set `key` in the last attempt of this acquire of any one of several keys. The key is
    /// then deleted by the attempt's own release.
    pub(super) fn has_set(&self, node: NodeId, key: &[u8], votes: &Votes) -> bool {
        let set_key = self.last_votes(votes).and_then(|votes| votes.set_key(node));
        let tried = self.any.as_ref().and_then(|any| any.tried.as_ref());
        tried.zip(set_key).and_then(|(keys, place)| keys.get(place)).is_some_and(|it| **it == *key)
    }

    pub(super) fn conflicts(&self, votes: &Votes) -> Vec<(NodeId, usize)> {
        self.last_votes(votes).map(VoteCounter::conflicts).unwrap_or_default()
    }

    /// Returns the nodes that are assumed to have no conflicting key: the nodes that granted the last attempt. For an
    /// acquire that needs several keys, also returns the nodes that were not asked. Such a node would not push the deletion of
    /// a key, so the acquire must not wait for its push.
    pub(super) fn free(&self, votes: &Votes) -> NodeSet {
        let Some(votes) = self.last_votes(votes) else { return NodeSet::default() };
        if self.is_set() { votes.without_conflict() } else { votes.round().granted() }
    }
}

impl Queue {
    pub(super) fn has_rivals(&self, now: Time) -> bool {
        self.rivals_at.is_some_and(|at| now.since(at) < RIVALS_FOR)
    }

    pub(super) fn head(&self) -> Option<AcquireId> {
        self.waiters.values().next().copied()
    }

    /// Allows the head of the queue to make attempts, and returns the head. Returns `None` if the queue is empty, or if
    /// the head was already allowed to make attempts.
    pub(super) fn promote(&self, waiters: &mut SlotMap<Acquires, Waiter>) -> Option<AcquireId> {
        let head = self.head()?;
        let waiter = waiters.get_mut(head).filter(|waiter| !waiter.waiting.is_first())?;
        waiter.waiting.handle_turn();
        if self.rivals_at.is_some() {
            waiter.waiting.handle_rivals(self.contention);
        }
        Some(head)
    }
}

/// Removes the queue if it is empty. If other clients competed for the lock recently, the empty queue is kept, and
/// `remembered` records the time of the next check.
pub(super) fn remove_if_over(
    mut entry: OccupiedEntry<'_, Key, Queue>,
    remembered: &mut VecDeque<(Time, Key)>,
    now: Time,
) {
    let queue = entry.get_mut();
    if !queue.waiters.is_empty() {
        return;
    }
    if !queue.has_rivals(now) {
        entry.remove();
    } else if !std::mem::replace(&mut queue.is_remembered, true) {
        remembered.push_back((now.after(RIVALS_FOR), entry.key().clone()));
    }
}
