//! Those who want several locks together, by what may be in their way.
//!
//! They stand in the queue of one key, as a rule of the one that is in the way on most nodes. Nodes may name
//! others all the same, or one may be released while an attempt for them is under way. So it is noted once for each
//! key when it has gone, and a set looks there when it is refused.
//!
//! A set whose turn it is watches those keys that were named beside that of its queue. Once such a key has gone, the
//! first of them is told that can try now; the others are told by that one when it has tried in vain, or leaves. Each is
//! looked at once for a node that named the key: what a release costs does not grow with the number of sets.

use super::queue::{Ticket, Told, tell};
use super::wait_queue::{Queues, WaitQueues};
use super::waiter::Waiter;
use crate::protocol::{Epoch, FreeNodes, NodeId, ReleaseLog, Time};
use crate::wire::{Key, Keys};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Who is told of a key and tries so soon after it can be had holds up the others.
const PROMPT: Duration = Duration::from_millis(5);

/// Those who have asked for several locks together.
#[derive(Default)]
pub(super) struct Sets {
    by_key: BTreeMap<Key, Wanted>,
    /// Each by when it joined.
    members: BTreeMap<Ticket, Member>,
    now: Epoch,
}

/// A key that is wanted together with others.
#[derive(Default)]
struct Wanted {
    /// By how many.
    count: usize,
    freed: ReleaseLog,
    /// Who watches it: by the node that named it, and in the order in which they were refused.
    watchers: BTreeMap<NodeId, BTreeMap<Epoch, Arc<Waiter>>>,
    /// The one of them that was told last, until it has tried.
    told: Option<Ticket>,
}

/// One who wants several locks.
struct Member {
    keys: Keys,
    /// When its last attempt began.
    began: Epoch,
    /// What it watches, on which node, and since when. A key is known by its place.
    watches: Vec<(NodeId, usize, Epoch)>,
    /// The keys that it was told of. Others may wait for it to try.
    told: Vec<usize>,
}

impl Sets {
    /// An attempt for all of `keys` begins.
    pub(super) fn handle_begin(&mut self, keys: &Keys, joined: Ticket) {
        if !self.members.contains_key(&joined) {
            for key in keys.iter() {
                if let Some(wanted) = self.by_key.get_mut(key) {
                    wanted.count += 1;
                } else {
                    self.by_key.insert(key.clone(), Wanted { count: 1, ..Wanted::default() });
                }
            }
        }
        let member = self.members.entry(joined).or_insert_with(|| Member {
            keys: keys.clone(),
            began: Epoch::default(),
            watches: Vec::new(),
            told: Vec::new(),
        });
        member.began = self.now;
        self.unwatch(joined);
    }

    /// The acquire is over. Returns those keys of which others may be told now.
    pub(super) fn remove(&mut self, joined: Ticket) -> Vec<Key> {
        self.unwatch(joined);
        let told = self.hand_on(joined);
        let Some(member) = self.members.remove(&joined) else { return told };
        for key in member.keys.iter() {
            let Some(wanted) = self.by_key.get_mut(key) else { continue };
            wanted.count -= 1;
            if wanted.count == 0 {
                self.by_key.remove(key);
            }
        }
        told
    }

    /// `node` says that `key` is gone there.
    pub(super) fn handle_freed(&mut self, node: NodeId, key: &[u8]) {
        self.now = self.now.next();
        if let Some(wanted) = self.by_key.get_mut(key) {
            wanted.freed.handle_freed(node, self.now);
        }
    }

    /// A lease of this process has ended, and `key` can be had from `at` on.
    pub(super) fn handle_release(&mut self, key: &[u8], at: Time) {
        self.now = self.now.next();
        if let Some(wanted) = self.by_key.get_mut(key) {
            wanted.freed.handle_release(at, self.now);
        }
    }

    /// The nodes where what was in the way of `waiter` has gone since its last attempt began.
    pub(super) fn free_for(&self, waiter: &Waiter) -> FreeNodes {
        let mut free = FreeNodes::default();
        let member = waiter.joined().and_then(|joined| self.members.get(&joined));
        let Some(member) = member else { return free };
        for (node, place) in waiter.obstacles() {
            let wanted = member.keys.get(place).and_then(|key| self.by_key.get(key));
            if let Some(at) = wanted.and_then(|one| one.freed.free_from(node, member.began)) {
                free.insert(node, at);
            }
        }
        free
    }

    /// `waiter`, which was refused and stands in the `queue`, watches what is in its way beside that.
    pub(super) fn watch(&mut self, waiter: &Arc<Waiter>, queue: Option<&Key>) {
        let Some(joined) = waiter.joined() else { return };
        self.unwatch(joined);
        let Some(member) = self.members.get_mut(&joined) else { return };
        self.now = self.now.next();
        for (node, place) in waiter.obstacles() {
            let key = member.keys.get(place).filter(|key| Some(*key) != queue);
            let Some(wanted) = key.and_then(|key| self.by_key.get_mut(key)) else { continue };
            if wanted.freed.free_from(node, member.began).is_none() {
                wanted.watchers.entry(node).or_default().insert(self.now, waiter.clone());
                member.watches.push((node, place, self.now));
            }
        }
    }

    fn unwatch(&mut self, joined: Ticket) {
        let Some(member) = self.members.get_mut(&joined) else { return };
        for (node, place, since) in std::mem::take(&mut member.watches) {
            let key = member.keys.get(place);
            if let Some(wanted) = key.and_then(|key| self.by_key.get_mut(key)) {
                wanted.take(node, since);
            }
        }
    }

    /// The first of those who watch `key`, if it has gone where they were refused for it, and from when on. It is not
    /// looked at again before its next attempt; nor is anybody while one that was told has not tried.
    fn next(&mut self, key: &[u8]) -> Option<(Arc<Waiter>, Time)> {
        let wanted = self.by_key.get_mut(key).filter(|wanted| wanted.told.is_none())?;
        let (since, node, from) = wanted.first()?;
        wanted.take(node, since).map(|waiter| (waiter, from))
    }

    /// `waiter` is told that `key` has gone.
    pub(super) fn note_told(&mut self, waiter: &Waiter, key: &[u8]) {
        let Some(joined) = waiter.joined() else { return };
        let Some(member) = self.members.get_mut(&joined) else { return };
        if let Some((place, wanted)) = member.keys.position(key).zip(self.by_key.get_mut(key)) {
            wanted.told = Some(joined);
            member.told.push(place);
        }
    }

    /// One that may have been told has tried, or does not move. Returns those keys of which others may be told now.
    pub(super) fn hand_on(&mut self, joined: Ticket) -> Vec<Key> {
        let Some(member) = self.members.get_mut(&joined) else { return Vec::new() };
        let told = std::mem::take(&mut member.told);
        let told: Vec<_> =
            told.into_iter().filter_map(|place| member.keys.get(place).cloned()).collect();
        for key in &told {
            if let Some(wanted) = self.by_key.get_mut(key) {
                wanted.told = None;
            }
        }
        told
    }

    /// True if others wait until this one, which was told, has tried.
    pub(super) fn holds_up(&self, joined: Ticket) -> bool {
        self.members.get(&joined).is_some_and(|member| {
            let mut told = member.told.iter().filter_map(|place| member.keys.get(*place));
            told.any(|key| self.is_watched(key, Some(joined)))
        })
    }

    /// True if somebody watches `key` who has not joined as this one.
    pub(super) fn is_watched(&self, key: &[u8], but: Option<Ticket>) -> bool {
        let wanted = self.by_key.get(key);
        let mut watchers = wanted.into_iter().flat_map(|one| one.watchers.values().flatten());
        watchers.any(|(_, waiter)| waiter.joined() != but)
    }
}

impl Wanted {
    /// The first that watches it on a node where it has gone since, and from when on it can be had there.
    fn first(&self) -> Option<(Epoch, NodeId, Time)> {
        let firsts = self.watchers.iter().filter_map(|(node, line)| {
            let (since, _) = line.first_key_value()?;
            self.freed.free_from(*node, *since).map(|from| (*since, *node, from))
        });
        firsts.min()
    }

    fn take(&mut self, node: NodeId, since: Epoch) -> Option<Arc<Waiter>> {
        let line = self.watchers.get_mut(&node)?;
        let waiter = line.remove(&since);
        if line.is_empty() {
            self.watchers.remove(&node);
        }
        waiter
    }
}

impl WaitQueues {
    /// More was heard of what is in the way of `waiter`, whose turn it is in the `queue`.
    pub(super) fn handle_obstacles(&self, waiter: &Arc<Waiter>, queue: Option<&Key>) {
        let mut all = self.queues();
        all.sets.watch(waiter, queue);
        let at = self.next_useful_try(&all, waiter);
        drop(all);
        if let Some(at) = at {
            waiter.schedule_try(at);
        }
    }

    /// A set was refused, and stands in the `queue`.
    pub(super) fn handle_set_refused(&self, joined: Ticket, queue: Option<&Key>) {
        let mut all = self.queues();
        let mut keys = all.sets.hand_on(joined);
        // Others have the key for which it stands in line now. When that goes, the next is told as well.
        keys.retain(|key| Some(key) != queue);
        let told = self.next_sets(&mut all, keys);
        drop(all);
        tell(told);
    }

    /// The acquire for a set is over.
    pub(super) fn handle_set_over(&self, joined: Ticket) {
        let mut all = self.queues();
        let keys = all.sets.remove(joined);
        let told = self.next_sets(&mut all, keys);
        drop(all);
        tell(told);
    }

    /// Those who watch `key` and are to be told, now that it has gone: the first that can try as soon as it can be had, and
    /// whoever stands before that and can try only later.
    pub(super) fn next_set(&self, all: &mut Queues, key: &[u8]) -> Told {
        let mut told = Told::new();
        while let Some((waiter, from)) = all.sets.next(key) {
            // Who has lost its turn tries when it moves.
            let at = if waiter.is_first() { self.next_useful_try(all, &waiter) } else { None };
            let Some(at) = at else { continue };
            told.push((waiter.clone(), at));
            if at <= from.max(self.clock().now()).after(PROMPT) {
                all.sets.note_told(&waiter, key);
                break;
            }
        }
        told
    }

    /// The same for each of these keys.
    pub(super) fn next_sets(&self, all: &mut Queues, keys: Vec<Key>) -> Told {
        keys.into_iter().flat_map(|key| self.next_set(all, &key)).collect()
    }
}
