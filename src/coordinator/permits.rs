//! Detects clients that use different numbers of permits for the same semaphore.

use super::completion::PermitsDifference;
use super::slots::AcquireId;
use super::state::Coordinator;
use crate::observe::EventLevel;
use crate::observe::event::Event;
use crate::wire::Key;

/// Maximum number of semaphores whose difference is remembered. Further ones are not reported.
const MAX_DIFFERENCES: usize = 1_024;

impl Coordinator {
    /// If a node has refused a permit that a client with another number of permits holds, records the difference. Emits
    /// [`Event::PermitsDiffer`], once per semaphore.
    pub(super) fn compare_permits(&mut self, id: AcquireId) {
        let prefix = self.cx.settings.prefix;
        let Some(acquire) = self.acquires.get(id) else { return };
        let Some((permits, attempt)) = acquire.terms.permits.zip(acquire.attempt()) else { return };
        let Some(votes) = self.rounds.get(attempt.round) else { return };
        let other = |node| votes.holder(node)?.permits().filter(|other| *other != permits);
        let nodes = || votes.round().quorum().ids();
        let Some(other_permits) = nodes().filter_map(other).max() else { return };
        let nodes = nodes().filter(|node| other(*node).is_some()).collect();
        let lock = acquire.lock(prefix);
        let key = acquire.terms.keys.first().clone();
        let is_known = self.differing_permits.contains_key(&key);
        if !is_known && self.differing_permits.len() >= MAX_DIFFERENCES {
            return;
        }
        let difference = PermitsDifference { permits, other_permits, nodes };
        self.differing_permits.insert(key, difference);
        if !is_known {
            self.cx.emit(EventLevel::Warn, |_| Event::PermitsDiffer {
                lock,
                permits,
                other_permits,
            });
        }
    }

    /// Returns the semaphores that other clients use with another number of permits, each with the key of a permit.
    pub(crate) fn differing_permits(&self) -> Vec<(Key, PermitsDifference)> {
        self.differing_permits.iter().map(|(key, it)| (key.clone(), *it)).collect()
    }
}
