//! Traits of an alarm: its callback, and the handle to an alarm on a test's clock.

use crate::protocol::Time;
use std::sync::Arc;

/// The callback of an alarm.
pub(crate) trait OnAlarm: Send + Sync {
    /// Handles the alarm at `now`, and returns the time of the next call, if any. The timer thread calls this method
    /// soon after the alarm is due, so the method must not block. After a panic, the timer repeats the call after a
    /// short pause.
    fn on_alarm(self: Arc<Self>, now: Time) -> Option<Time>;
}

#[cfg(feature = "test-util")]
/// A handle to an alarm set with a [`TimeSource`](super::TimeSource). Dropping the handle cancels the alarm.
pub(crate) trait SourceAlarm: Send + Sync {
    /// Reschedules the alarm to `at`, unless it is due earlier.
    fn reschedule_earlier(&self, at: Time);
}
