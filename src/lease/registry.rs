//! The leases of one client.

use super::state::LeaseState;
use crate::coordinator::LeaseId;
use crate::engine::LeaseListener;
use crate::sync::{catch_panic, lock};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

/// Leases that were acquired and not yet released.
#[derive(Default)]
pub(crate) struct LeaseRegistry {
    leases: Mutex<BTreeMap<LeaseId, Weak<LeaseState>>>,
}

impl LeaseRegistry {
    pub(super) fn enter(&self, lease: &Arc<LeaseState>) {
        lock(&self.leases).insert(lease.id(), Arc::downgrade(lease));
    }

    /// Returns the total number of keys of all leases.
    #[cfg(feature = "test-util")]
    pub(crate) fn count(&self) -> usize {
        self.all().iter().map(|lease| lease.claim().keys().len()).sum()
    }

    /// Returns all leases, oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<LeaseState>> {
        lock(&self.leases).values().filter_map(Weak::upgrade).collect()
    }
}

impl LeaseListener for LeaseRegistry {
    fn handle_end(&self, lease: LeaseId) {
        let state = lock(&self.leases).get(&lease).and_then(Weak::upgrade);
        if let Some(state) = state {
            state.wake_waiters();
        }
    }

    fn handle_release(&self, lease: LeaseId) {
        lock(&self.leases).remove(&lease);
    }

    fn handle_close(&self) {
        let leases = std::mem::take(&mut *lock(&self.leases));
        for lease in leases.values().filter_map(Weak::upgrade) {
            lease.end_by_close();
        }
    }

    fn handle_failure(&self) {
        let leases = std::mem::take(&mut *lock(&self.leases));
        for lease in leases.values().filter_map(Weak::upgrade) {
            lease.handle_failure();
        }
    }

    fn wake_all(&self) {
        for lease in self.all() {
            catch_panic(|| lease.wake_waiters());
        }
    }
}
