//! The alarm of a client. The first task of the client sets the alarm, and closing the client cancels it.

use crate::protocol::Time;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, lock};
use crate::time::Alarm;

pub(super) struct ClientAlarm {
    alarm: Mutex<Option<Alarm>>,
    /// When the alarm fires next, in nanoseconds. `u64::MAX` until that time is known.
    at: AtomicU64,
}

impl Default for ClientAlarm {
    fn default() -> Self {
        Self { alarm: Mutex::default(), at: AtomicU64::new(u64::MAX) }
    }
}

impl ClientAlarm {
    /// Creates the alarm by calling `set`, unless the alarm exists. `set` must create an alarm that fires
    /// immediately. The handler of this first firing determines the time of the next firing.
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

    pub(super) fn fire_by(&self, at: Time) {
        // Usually, the alarm is already set to an earlier time, and the load suffices.
        if at.as_nanos() < self.at.load(Ordering::SeqCst)
            && at.as_nanos() < self.at.fetch_min(at.as_nanos(), Ordering::SeqCst)
            && let Some(alarm) = &*lock(&self.alarm)
        {
            alarm.reschedule_earlier(at);
        }
    }

    /// Records that the alarm is firing, so that later calls of [`fire_by`](Self::fire_by) schedule the next firing.
    pub(super) fn handle_firing(&self) {
        self.at.store(u64::MAX, Ordering::SeqCst);
    }
}
