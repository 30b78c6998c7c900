//! The alarm of a client, from the start of its first task until the client is closed.

use crate::protocol::Time;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, lock};
use crate::time::Alarm;

pub(super) struct ClientAlarm {
    alarm: Mutex<Option<Alarm>>,
    /// When the alarm rings, in nanoseconds.
    at: AtomicU64,
}

impl Default for ClientAlarm {
    fn default() -> Self {
        Self { alarm: Mutex::default(), at: AtomicU64::new(u64::MAX) }
    }
}

impl ClientAlarm {
    /// Sets the alarm if it is not set. A new alarm rings at once.
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

    /// Makes the alarm ring at `at` or earlier.
    pub(super) fn hasten(&self, at: Time) {
        // Usually, the alarm is already set to an earlier time, and the load suffices.
        if at.as_nanos() < self.at.load(Ordering::SeqCst)
            && at.as_nanos() < self.at.fetch_min(at.as_nanos(), Ordering::SeqCst)
            && let Some(alarm) = &*lock(&self.alarm)
        {
            alarm.hasten(at);
        }
    }

    /// Records that the alarm rings. Later calls of [`hasten`](Self::hasten) apply to the next ring.
    pub(super) fn handle_ring(&self) {
        self.at.store(u64::MAX, Ordering::SeqCst);
    }
}
