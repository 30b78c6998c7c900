//! Acquires of several keys ("sets"), and the keys that conflict with them.
//!
//! A set waits in the queue of one key, usually the key that conflicts on most nodes. Nodes may report conflicts of
//! other keys, and keys may be deleted while an attempt is under way. Each deletion is therefore recorded once for its
//! key, and a set reads these records when it is refused.
//!
//! A set that is first in its queue watches the other conflicting keys. When one of these keys is deleted, the first
//! watcher that can try is notified and gets the turn for the key. The watcher passes the turn on when it is refused or
//! leaves. Each watcher is checked once per node that reported the key, so the cost of a release does not grow with the
//! number of sets.

use super::slots::AcquireId;
use crate::protocol::{Epoch, FreeNodes, NodeId, ReleaseLog, Time};
use crate::wire::{Key, Keys};
use std::collections::BTreeMap;

/// The conflicting key of each node, as an index into the keys of the set.
pub(super) type Conflicts = [(NodeId, usize)];

#[derive(Default)]
pub(super) struct Sets {
    by_key: BTreeMap<Key, Wanted>,
    members: BTreeMap<AcquireId, Member>,
    now: Epoch,
}

#[derive(Default)]
struct Wanted {
    /// Number of sets that want the key.
    count: usize,
    freed: ReleaseLog,
    /// The watching sets, by the node that reported the conflict and in the order of their refusals.
    watchers: BTreeMap<NodeId, BTreeMap<Epoch, AcquireId>>,
    /// The watcher that was notified last and has not tried since.
    notified: Option<AcquireId>,
}

struct Member {
    keys: Keys,
    began: Epoch,
    /// The watched keys: the node, the index into `keys`, and the start of the watch.
    watches: Vec<(NodeId, usize, Epoch)>,
    /// Indices into `keys` of the keys for which the set has the turn.
    notified: Vec<usize>,
}

/// A set whose watched key was deleted.
pub(super) struct Candidate {
    pub(super) acquire: AcquireId,
    /// When the key becomes free.
    pub(super) from: Time,
}

impl Sets {
    pub(super) fn handle_begin(&mut self, acquire: AcquireId, keys: &Keys) {
        if !self.members.contains_key(&acquire) {
            for key in keys.iter() {
                self.by_key.entry(key.clone()).or_default().count += 1;
            }
        }
        let now = self.now;
        let member = self.members.entry(acquire).or_insert_with(|| Member {
            keys: keys.clone(),
            began: now,
            watches: Vec::new(),
            notified: Vec::new(),
        });
        member.began = now;
        self.unwatch(acquire);
    }

    /// Removes an acquire that is over. Returns the keys whose turn the acquire passes on.
    pub(super) fn remove(&mut self, acquire: AcquireId) -> Vec<Key> {
        self.unwatch(acquire);
        let passed_on = self.pass_on(acquire);
        let Some(member) = self.members.remove(&acquire) else { return passed_on };
        for key in member.keys.iter() {
            let Some(wanted) = self.by_key.get_mut(key) else { continue };
            wanted.count -= 1;
            if wanted.count == 0 {
                self.by_key.remove(key);
            }
        }
        passed_on
    }

    pub(super) fn handle_freed(&mut self, node: NodeId, key: &[u8]) {
        self.now = self.now.next();
        if let Some(wanted) = self.by_key.get_mut(key) {
            wanted.freed.handle_freed(node, self.now);
        }
    }

    /// Records that a lease of this client has ended, which frees `key` on all nodes from `at` on.
    pub(super) fn handle_release(&mut self, key: &[u8], at: Time) {
        self.now = self.now.next();
        if let Some(wanted) = self.by_key.get_mut(key) {
            wanted.freed.handle_release(at, self.now);
        }
    }

    /// Returns the nodes whose conflicting key was deleted after the set's last attempt began.
    pub(super) fn free_nodes(&self, acquire: AcquireId, conflicts: &Conflicts) -> FreeNodes {
        let mut free = FreeNodes::default();
        let Some(member) = self.members.get(&acquire) else { return free };
        for (node, place) in conflicts {
            let wanted = member.keys.get(*place).and_then(|key| self.by_key.get(key));
            if let Some(at) = wanted.and_then(|one| one.freed.free_from(*node, member.began)) {
                free.insert(*node, at);
            }
        }
        free
    }

    /// Makes a refused set watch its `conflicts`, except the key whose `queue` the set waits in.
    pub(super) fn watch(&mut self, acquire: AcquireId, queue: Option<&Key>, conflicts: &Conflicts) {
        self.unwatch(acquire);
        let Some(member) = self.members.get_mut(&acquire) else { return };
        self.now = self.now.next();
        for (node, place) in conflicts {
            let key = member.keys.get(*place).filter(|key| Some(*key) != queue);
            let Some(wanted) = key.and_then(|key| self.by_key.get_mut(key)) else { continue };
            if wanted.freed.free_from(*node, member.began).is_none() {
                wanted.watchers.entry(*node).or_default().insert(self.now, acquire);
                member.watches.push((*node, *place, self.now));
            }
        }
    }

    fn unwatch(&mut self, acquire: AcquireId) {
        let Some(member) = self.members.get_mut(&acquire) else { return };
        for (node, place, since) in std::mem::take(&mut member.watches) {
            let key = member.keys.get(place);
            if let Some(wanted) = key.and_then(|key| self.by_key.get_mut(key)) {
                wanted.take(node, since);
            }
        }
    }

    /// Takes the earliest watcher of `key` whose node has deleted the key. Returns `None` while another watcher has the
    /// turn.
    pub(super) fn next_candidate(&mut self, key: &[u8]) -> Option<Candidate> {
        let wanted = self.by_key.get_mut(key).filter(|wanted| wanted.notified.is_none())?;
        let firsts = wanted.watchers.iter().filter_map(|(node, watchers)| {
            let (since, _) = watchers.first_key_value()?;
            wanted.freed.free_from(*node, *since).map(|from| (*since, *node, from))
        });
        let (since, node, from) = firsts.min()?;
        wanted.take(node, since).map(|acquire| Candidate { acquire, from })
    }

    /// Records that the set has the turn for `key` until its next attempt.
    pub(super) fn handle_notified(&mut self, acquire: AcquireId, key: &[u8]) {
        let Some(member) = self.members.get_mut(&acquire) else { return };
        if let Some((place, wanted)) = member.keys.position(key).zip(self.by_key.get_mut(key)) {
            wanted.notified = Some(acquire);
            member.notified.push(place);
        }
    }

    /// Ends all turns of a set that has tried. Returns the keys of these turns.
    pub(super) fn pass_on(&mut self, acquire: AcquireId) -> Vec<Key> {
        let Some(member) = self.members.get_mut(&acquire) else { return Vec::new() };
        let places = std::mem::take(&mut member.notified);
        let keys: Vec<_> =
            places.into_iter().filter_map(|place| member.keys.get(place).cloned()).collect();
        for key in &keys {
            if let Some(wanted) = self.by_key.get_mut(key) {
                wanted.notified = None;
            }
        }
        keys
    }

    pub(super) fn is_wanted(&self, key: &[u8], except: AcquireId) -> bool {
        let own = self.members.get(&except).is_some_and(|it| it.keys.position(key).is_some());
        self.by_key.get(key).is_some_and(|wanted| wanted.count > usize::from(own))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.by_key.is_empty()
    }
}

impl Wanted {
    fn take(&mut self, node: NodeId, since: Epoch) -> Option<AcquireId> {
        let watchers = self.watchers.get_mut(&node)?;
        let acquire = watchers.remove(&since);
        if watchers.is_empty() {
            self.watchers.remove(&node);
        }
        acquire
    }
}
