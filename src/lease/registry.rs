//! Registry of a client's leases.

use super::state::LeaseState;
use crate::acquire::PreviousLease;
use crate::node::{Claim, PushSink};
use crate::protocol::{ClockSteps, NodeId, Tenure, Time};
use crate::sync::lock;
use crate::wire::Value;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

/// The leases that were acquired and not yet released, by key.
#[derive(Default)]
pub(crate) struct LeaseRegistry {
    state: Mutex<State>,
    /// The forward steps of nodes' clocks.
    steps: Mutex<ClockSteps>,
}

#[derive(Default)]
struct State {
    leases: BTreeMap<Entry, Weak<LeaseState>>,
    is_closed: bool,
}

/// One of the keys of a claim.
struct Entry {
    claim: Arc<Claim>,
    index: usize,
}

impl LeaseRegistry {
    /// Adds a lease. Returns false if the client is closed. An older lease of one of its keys is
    /// lost: the lock was taken from it, for example by a forced release.
    pub(crate) fn enter(&self, lease: &Arc<LeaseState>) -> bool {
        let mut replaced = Vec::new();
        {
            let mut state = self.state();
            if state.is_closed {
                return false;
            }
            let claim = lease.claim();
            for index in 0..claim.keys().len() {
                let entry = Entry { claim: claim.clone(), index };
                // The map would keep the older entry, and with it the older claim.
                replaced.extend(state.leases.remove(&entry));
                state.leases.insert(entry, Arc::downgrade(lease));
            }
        }
        replaced.iter().filter_map(Weak::upgrade).for_each(|lease| lease.handle_taken_over());
        true
    }

    /// The lease on `key` with this value.
    pub(crate) fn find(&self, key: &[u8], value: &Value) -> Option<Arc<LeaseState>> {
        let known = self.state().leases.get(key).and_then(Weak::upgrade);
        known.filter(|lease| lease.claim().value() == value)
    }

    /// Removes the lease of `claim`, but not a later lease of the same keys.
    pub(crate) fn remove(&self, claim: &Arc<Claim>) {
        let mut state = self.state();
        for key in claim.keys().iter() {
            let known = state.leases.get_key_value(&**key);
            if known.is_some_and(|(entry, _)| Arc::ptr_eq(&entry.claim, claim)) {
                state.leases.remove(&**key);
            }
        }
    }

    /// True if a lease on `key` is valid in this client.
    pub(crate) fn holds(&self, key: &[u8]) -> bool {
        let known = self.state().leases.get(key).and_then(Weak::upgrade);
        known.is_some_and(|lease| matches!(lease.tenure(), Tenure::Held { .. }))
    }

    /// All leases, each once, without those that were inherited from a parent process.
    pub(crate) fn all(&self) -> Vec<Arc<LeaseState>> {
        let mut leases: Vec<_> = {
            let state = self.state();
            let firsts = state.leases.iter().filter(|(entry, _)| entry.index == 0);
            firsts.filter_map(|(_, lease)| lease.upgrade()).collect()
        };
        leases.retain(|lease| lease.is_ours());
        leases
    }

    /// Number of keys.
    pub(crate) fn count(&self) -> usize {
        self.state().leases.len()
    }

    /// Rejects new leases from now on. Returns the existing ones.
    pub(crate) fn close(&self) -> Vec<Arc<LeaseState>> {
        self.state().is_closed = true;
        self.all()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl PushSink for LeaseRegistry {
    fn handle_push(&self, node: NodeId, key: Option<&[u8]>) {
        let told = match key {
            Some(key) => self.state().leases.get(key).and_then(Weak::upgrade).into_iter().collect(),
            None => self.all(),
        };
        for lease in told {
            lease.handle_push(node);
        }
    }

    fn handle_step(&self, node: NodeId, ahead: Duration, seen: Time) {
        lock(&self.steps).handle_step(node, ahead, seen);
        for lease in self.all() {
            lease.handle_step(|t1| lock(&self.steps).since(t1));
        }
    }
}

impl Entry {
    fn key(&self) -> &[u8] {
        self.claim.keys().get(self.index).map_or(&[], |key| key)
    }
}

impl Borrow<[u8]> for Entry {
    fn borrow(&self) -> &[u8] {
        self.key()
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(other.key())
    }
}
