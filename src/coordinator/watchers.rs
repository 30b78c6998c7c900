//! The acquires that wait for the deletion of any one of several keys.

use super::slots::AcquireId;
use crate::wire::{Key, Keys};
use std::collections::{BTreeMap, BTreeSet, HashMap};

#[derive(Default)]
pub(super) struct Watchers {
    by_key: HashMap<Key, BTreeSet<AcquireId>>,
    by_acquire: BTreeMap<AcquireId, BTreeSet<Key>>,
}

impl Watchers {
    /// Makes `acquire` wait also for the deletion of `keys`.
    pub(super) fn add(&mut self, acquire: AcquireId, keys: &Keys) {
        let own = self.by_acquire.entry(acquire).or_default();
        for key in keys.iter() {
            if own.insert(key.clone()) {
                self.by_key.entry(key.clone()).or_default().insert(acquire);
            }
        }
    }

    pub(super) fn remove(&mut self, acquire: AcquireId) {
        let Some(keys) = self.by_acquire.remove(&acquire) else { return };
        for key in keys {
            if let Some(acquires) = self.by_key.get_mut(&key) {
                acquires.remove(&acquire);
                if acquires.is_empty() {
                    self.by_key.remove(&key);
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
