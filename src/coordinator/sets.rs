//! Waiting for several keys at once. An acquire of several keys is called a set.
//!
//! A set waits in the queue of one key, usually the key that conflicts on most nodes. Other nodes may report other
//! conflicting keys, and keys may be deleted during an attempt. Deletions are therefore recorded per key. After a
//! refusal, the records show which nodes have become free since the attempt began.
//!
//! The set at the head of a queue also watches its other conflicting keys. When one of these keys is deleted, the first
//! watching set that can try is notified and gets the turn for the key: no other watching set makes an attempt. The set
//! passes the turn to the next watching set when its attempt is refused, or when it stops waiting. Each watching set is
//! checked at most once for each node that reported the key, so later deletions of the key do not check the same sets
//! again.

use super::slots::AcquireId;
use crate::protocol::{Epoch, FreeNodes, NodeId, ReleaseLog, Time};
use crate::wire::{Key, Keys};
use std::collections::BTreeMap;

/// The nodes that reported a conflicting key, each with the key's index in [`Keys`].
pub(super) type Conflicts = [(NodeId, usize)];

#[derive(Default)]
pub(super) struct Sets {
    by_key: BTreeMap<Key, KeyInterest>,
    by_acquire: BTreeMap<AcquireId, SetState>,
    now: Epoch,
}

#[derive(Default)]
struct KeyInterest {
    /// The number of waiting multi-key acquires that contain this key.
    count: usize,
    freed: ReleaseLog,
    /// The multi-key acquires that wait for this key, by the node that reported the conflict. For each node, the
    /// longest-waiting acquire comes first.
    watchers: BTreeMap<NodeId, BTreeMap<Epoch, AcquireId>>,
    /// The multi-key acquire that was notified of the key's deletion and has not completed an attempt since. While this
    /// field is `Some`, no other acquire is notified.
    notified: Option<AcquireId>,
}

struct SetState {
    keys: Keys,
    began: Epoch,
    /// The keys whose deletion the acquire waits for: the node, the index into `keys`, and when the wait began.
    watches: Vec<(NodeId, usize, Epoch)>,
    /// Indices into `keys` of the keys for which this acquire is [`KeyInterest::notified`].
    notified: Vec<usize>,
}

/// A multi-key acquire that waited for the deletion of a key, and can be notified now.
pub(super) struct Candidate {
    pub(super) acquire: AcquireId,
    pub(super) from: Time,
}

impl Sets {
    pub(super) fn handle_begin(&mut self, acquire: AcquireId, keys: &Keys) {
        if !self.by_acquire.contains_key(&acquire) {
            for key in keys.iter() {
                self.by_key.entry(key.clone()).or_default().count += 1;
            }
        }
        let now = self.now;
        let set = self.by_acquire.entry(acquire).or_insert_with(|| SetState {
            keys: keys.clone(),
            began: now,
            watches: Vec::new(),
            notified: Vec::new(),
        });
        set.began = now;
        self.unwatch(acquire);
    }

    /// Removes an acquire that no longer waits. Returns the keys for which the acquire was notified of a deletion. The
    /// caller must notify the next waiting acquires of these keys.
    pub(super) fn remove(&mut self, acquire: AcquireId) -> Vec<Key> {
        self.unwatch(acquire);
        let passed_on = self.pass_on(acquire);
        let Some(set) = self.by_acquire.remove(&acquire) else { return passed_on };
        for key in set.keys.iter() {
            let Some(interest) = self.by_key.get_mut(key) else { continue };
            interest.count -= 1;
            if interest.count == 0 {
                self.by_key.remove(key);
            }
        }
        passed_on
    }

    pub(super) fn handle_freed(&mut self, node: NodeId, key: &[u8]) {
        self.now = self.now.next();
        if let Some(interest) = self.by_key.get_mut(key) {
            interest.freed.handle_freed(node, self.now);
        }
    }

    /// Records the release of a lease held by this client. The key is free on all nodes from `at` onwards.
    pub(super) fn handle_release(&mut self, key: &[u8], at: Time) {
        self.now = self.now.next();
        if let Some(interest) = self.by_key.get_mut(key) {
            interest.freed.handle_release(at, self.now);
        }
    }

    /// Returns the nodes whose conflicting key was deleted after the last attempt of the acquire began, with the time
    /// of each deletion.
    pub(super) fn free_nodes(&self, acquire: AcquireId, conflicts: &Conflicts) -> FreeNodes {
        let mut free = FreeNodes::default();
        let Some(set) = self.by_acquire.get(&acquire) else { return free };
        for (node, place) in conflicts {
            let interest = set.keys.get(*place).and_then(|key| self.by_key.get(key));
            if let Some(at) = interest.and_then(|one| one.freed.free_from(*node, set.began)) {
                free.insert(*node, at);
            }
        }
        free
    }

    /// Makes a refused multi-key acquire wait for the deletion of its `conflicts`. Excludes the key `queue`, in whose
    /// queue the acquire already waits, and keys that were deleted during the attempt.
    pub(super) fn watch(&mut self, acquire: AcquireId, queue: Option<&Key>, conflicts: &Conflicts) {
        self.unwatch(acquire);
        let Some(set) = self.by_acquire.get_mut(&acquire) else { return };
        self.now = self.now.next();
        for (node, place) in conflicts {
            let key = set.keys.get(*place).filter(|key| Some(*key) != queue);
            let Some(interest) = key.and_then(|key| self.by_key.get_mut(key)) else { continue };
            if interest.freed.free_from(*node, set.began).is_none() {
                interest.watchers.entry(*node).or_default().insert(self.now, acquire);
                set.watches.push((*node, *place, self.now));
            }
        }
    }

    fn unwatch(&mut self, acquire: AcquireId) {
        let Some(set) = self.by_acquire.get_mut(&acquire) else { return };
        for (node, place, since) in std::mem::take(&mut set.watches) {
            let key = set.keys.get(place);
            if let Some(interest) = key.and_then(|key| self.by_key.get_mut(key)) {
                interest.take(node, since);
            }
        }
    }

    /// Removes and returns the longest-waiting multi-key acquire that waits for `key` on a node that has deleted `key`.
    /// Returns `None` if no such acquire exists, or if another acquire was already notified.
    pub(super) fn next_candidate(&mut self, key: &[u8]) -> Option<Candidate> {
        let interest = self.by_key.get_mut(key).filter(|interest| interest.notified.is_none())?;
        let firsts = interest.watchers.iter().filter_map(|(node, watchers)| {
            let (since, _) = watchers.first_key_value()?;
            interest.freed.free_from(*node, *since).map(|from| (*since, *node, from))
        });
        let (since, node, from) = firsts.min()?;
        interest.take(node, since).map(|acquire| Candidate { acquire, from })
    }

    /// Records that the multi-key acquire was notified of the deletion of `key`. No other acquire is notified until
    /// [`pass_on`](Self::pass_on) is called.
    pub(super) fn handle_notified(&mut self, acquire: AcquireId, key: &[u8]) {
        let Some(set) = self.by_acquire.get_mut(&acquire) else { return };
        if let Some((place, interest)) = set.keys.position(key).zip(self.by_key.get_mut(key)) {
            interest.notified = Some(acquire);
            set.notified.push(place);
        }
    }

    /// Allows the next waiting acquires to be notified, because this acquire has completed an attempt or no longer
    /// waits. Returns the keys for which this acquire was notified of a deletion.
    pub(super) fn pass_on(&mut self, acquire: AcquireId) -> Vec<Key> {
        let Some(set) = self.by_acquire.get_mut(&acquire) else { return Vec::new() };
        let places = std::mem::take(&mut set.notified);
        let keys: Vec<_> =
            places.into_iter().filter_map(|place| set.keys.get(place).cloned()).collect();
        for key in &keys {
            if let Some(interest) = self.by_key.get_mut(key) {
                interest.notified = None;
            }
        }
        keys
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_acquire.is_empty() && self.by_key.is_empty()
    }
}

impl KeyInterest {
    fn take(&mut self, node: NodeId, since: Epoch) -> Option<AcquireId> {
        let watchers = self.watchers.get_mut(&node)?;
        let acquire = watchers.remove(&since);
        if watchers.is_empty() {
            self.watchers.remove(&node);
        }
        acquire
    }
}
