//! The acquires that wait for the deletion of any one of several keys.

use super::slots::AcquireId;
use crate::wire::{Key, Keys};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

#[derive(Default)]
pub(super) struct Watchers {
    /// The acquires that wait for each key, in ascending order.
    by_key: HashMap<Key, Vec<AcquireId>>,
    by_acquire: BTreeMap<AcquireId, Vec<Key>>,
}

impl Watchers {
    /// Makes `acquire` wait also for the deletion of `keys`.
    pub(super) fn add(&mut self, acquire: AcquireId, keys: &Keys) {
        let own = self.by_acquire.entry(acquire).or_default();
        for key in keys.iter() {
            let acquires = self.by_key.entry(key.clone()).or_default();
            if let Err(place) = acquires.binary_search(&acquire) {
                acquires.insert(place, acquire);
                own.push(key.clone());
            }
        }
    }

    pub(super) fn remove(&mut self, acquire: AcquireId) {
        let Some(keys) = self.by_acquire.remove(&acquire) else { return };
        for key in keys {
            if let Entry::Occupied(mut entry) = self.by_key.entry(key) {
                entry.get_mut().retain(|other| *other != acquire);
                if entry.get().is_empty() {
                    entry.remove();
                }
            }
        }
    }

    /// Returns the acquires that wait for `key`.
    pub(super) fn of(&self, key: &[u8]) -> impl Iterator<Item = AcquireId> {
        self.by_key.get(key).into_iter().flatten().copied()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty() && self.by_acquire.is_empty()
    }
}
