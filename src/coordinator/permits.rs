//! Detects clients that use different numbers of permits for the same semaphore.

use super::slots::AcquireId;
use super::state::Coordinator;
use crate::observe::EventLevel;
use crate::observe::event::Event;
use crate::wire::Value;

/// Maximum number of semaphores whose difference is remembered. Further ones are not reported.
const MAX_COMPARED: usize = 1_024;

impl Coordinator {
    /// If a node has refused a permit that a client with another number of permits holds, emits
    /// [`Event::PermitsDiffer`], once per semaphore.
    pub(super) fn compare_permits(&mut self, id: AcquireId) {
        let prefix = self.cx.settings.prefix;
        let Some(acquire) = self.acquires.get(id) else { return };
        let Some((permits, attempt)) = acquire.terms.permits.zip(acquire.attempt()) else { return };
        let Some(votes) = self.rounds.get(attempt.round) else { return };
        let others = votes.holders().filter_map(Value::permits);
        let Some(other_permits) = others.filter(|other| *other != permits).max() else { return };
        let lock = acquire.lock(prefix);
        if self.cx.wants(EventLevel::Warn)
            && self.compared.len() < MAX_COMPARED
            && self.compared.insert(acquire.terms.keys.first().clone())
        {
            self.cx.emit(EventLevel::Warn, |_| Event::PermitsDiffer {
                lock,
                permits,
                other_permits,
            });
        }
    }
}
