//! Interfaces of an alarm: its callback, and the handle of an alarm that a test's clock sets.

use crate::protocol::Time;
use std::sync::Arc;

/// Callback of an alarm.
pub(crate) trait Ring: Send + Sync {
    /// Runs on the timer's thread soon after the alarm is due. Must not block. Returns the time of the next call, if
    /// any. After a panic, the next call follows after a short pause.
    fn ring(self: Arc<Self>, now: Time) -> Option<Time>;
}

#[cfg(feature = "test-util")]
/// An alarm that a [`TimeSource`](super::TimeSource) has set. Dropping it cancels the alarm.
pub(crate) trait SourceAlarm: Send + Sync {
    /// Makes the alarm due at `at`, unless it is due earlier.
    fn hasten(&self, at: Time);
}
