//! The requests that wait for a change of any one of several keys.

use super::slots::Id;
use crate::wire::{Key, Keys};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

pub(super) struct Watchers<K> {
    /// The requests that wait for each key, in ascending order.
    by_key: HashMap<Key, Vec<Id<K>>>,
    by_request: BTreeMap<Id<K>, Vec<Key>>,
}

impl<K> Default for Watchers<K> {
    fn default() -> Self {
        Self { by_key: HashMap::new(), by_request: BTreeMap::new() }
    }
}

impl<K: Copy + Ord> Watchers<K> {
    /// Makes `request` wait also for a change of `keys`.
    pub(super) fn add(&mut self, request: Id<K>, keys: &Keys) {
        let own = self.by_request.entry(request).or_default();
        for key in keys.iter() {
            let requests = self.by_key.entry(key.clone()).or_default();
            if let Err(place) = requests.binary_search(&request) {
                requests.insert(place, request);
                own.push(key.clone());
            }
        }
    }

    pub(super) fn remove(&mut self, request: Id<K>) {
        let Some(keys) = self.by_request.remove(&request) else { return };
        for key in keys {
            if let Entry::Occupied(mut entry) = self.by_key.entry(key) {
                entry.get_mut().retain(|other| *other != request);
                if entry.get().is_empty() {
                    entry.remove();
                }
            }
        }
    }

    /// Returns the requests that wait for `key`.
    pub(super) fn of(&self, key: &[u8]) -> impl Iterator<Item = Id<K>> {
        self.by_key.get(key).into_iter().flatten().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty() && self.by_request.is_empty()
    }
}
