//! Those who want several locks together, by what may be in their way.
//!
//! They stand in the queue of one key, as a rule of the one that is in the way on most nodes. Nodes may name
//! others all the same, or one may be released while an attempt for them is under way: what becomes of those
//! is told here.

use super::queue::Ticket;
use super::waiter::Waiter;
use crate::wire::{Key, Keys};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Those who have asked for several locks together, by each of these, and by when they joined.
#[derive(Default)]
pub(super) struct Sets(BTreeMap<Key, BTreeMap<Ticket, Arc<Waiter>>>);

impl Sets {
    /// An attempt for all of `keys` begins.
    pub(super) fn insert(&mut self, keys: &Keys, joined: Ticket, waiter: &Arc<Waiter>) {
        for key in keys.iter() {
            if let Some(waiters) = self.0.get_mut(key) {
                waiters.insert(joined, waiter.clone());
            } else {
                self.0.insert(key.clone(), BTreeMap::from([(joined, waiter.clone())]));
            }
        }
    }

    /// The acquire for all of `keys` is over.
    pub(super) fn remove(&mut self, keys: &Keys, joined: Ticket) {
        for key in keys.iter() {
            if let Some(waiters) = self.0.get_mut(key) {
                waiters.remove(&joined);
                if waiters.is_empty() {
                    self.0.remove(key);
                }
            }
        }
    }

    /// Those that `key` may keep out. The others are not looked at again before their next attempt.
    pub(super) fn kept_out_by(&mut self, key: &[u8]) -> Vec<Arc<Waiter>> {
        let Some(waiters) = self.0.get_mut(key) else { return Vec::new() };
        waiters.retain(|_, waiter| waiter.may_be_kept_out_by(key));
        let kept_out = waiters.values().cloned().collect();
        if waiters.is_empty() {
            self.0.remove(key);
        }
        kept_out
    }
}
