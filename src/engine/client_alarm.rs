//! When the alarm of a client rings.

use crate::protocol::Time;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, lock};
use crate::time::Alarm;

/// The alarm of a client, from its first task until it is closed.
pub(super) struct ClientAlarm {
    alarm: Mutex<Option<Alarm>>,
    /// When it rings, in nanoseconds.
    at: AtomicU64,
}

impl Default for ClientAlarm {
    fn default() -> Self {
        Self { alarm: Mutex::default(), at: AtomicU64::new(u64::MAX) }
    }
}

impl ClientAlarm {
    /// Sets the alarm if it is not set: it rings at once.
    pub(super) fn set(&self, set: impl FnOnce() -> Alarm) {
        let mut alarm = lock(&self.alarm);
        if alarm.is_none() {
            self.at.store(0, Ordering::SeqCst);
            *alarm = Some(set());
        }
    }

    pub(super) fn cancel(&self) {
        let alarm = lock(&self.alarm).take();
        drop(alarm);
    }

    /// The alarm rings at `at` at the latest.
    pub(super) fn hasten(&self, at: Time) {
        // Usually it rings earlier.
        if at.as_nanos() < self.at.load(Ordering::SeqCst)
            && at.as_nanos() < self.at.fetch_min(at.as_nanos(), Ordering::SeqCst)
            && let Some(alarm) = &*lock(&self.alarm)
        {
            alarm.hasten(at);
        }
    }

    /// The alarm rings. Later calls of [`hasten`](Self::hasten) apply to the next time.
    pub(super) fn handle_ring(&self) {
        self.at.store(u64::MAX, Ordering::SeqCst);
    }
}
