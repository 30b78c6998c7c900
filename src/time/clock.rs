//! A client's clock, and how alarms are set on it.

use super::machine;
use super::on_alarm::OnAlarm;
#[cfg(feature = "test-util")]
use super::on_alarm::SourceAlarm;
use super::timer::{self, Alarm};
use crate::protocol::Time;
use std::io;
#[cfg(feature = "test-util")]
use std::sync::Arc;
use std::sync::Weak;

#[cfg(feature = "test-util")]
/// A clock that replaces the machine's clock for some clients.
pub(crate) trait TimeSource: Send + Sync {
    /// Returns the time since an arbitrary origin. The clock never goes backwards.
    fn now(&self) -> Time;

    /// Returns the wall-clock time in microseconds since 1970, or 0 before 1970.
    fn wall_us(&self) -> u64;

    /// Sets an alarm that calls `callback` at the time `at`. If `callback` returns another time, the alarm calls it
    /// again at that time. Dropping the returned alarm cancels it.
    fn set_alarm(&self, at: Time, callback: Weak<dyn OnAlarm>) -> Box<dyn SourceAlarm>;

    /// Returns true if the time is simulated. The client must then read no other clock, not even tokio's.
    fn is_simulated(&self) -> bool {
        false
    }
}

/// The clock that a client uses for its leases, waits and alarms. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) enum Clock {
    /// The machine's clock. One thread per process fires its alarms.
    #[default]
    Machine,
    #[cfg(feature = "test-util")]
    Other(Arc<dyn TimeSource>),
}

impl Clock {
    /// Returns the current time. The clock never goes backwards.
    pub(crate) fn now(&self) -> Time {
        match self {
            Self::Machine => machine::now(),
            #[cfg(feature = "test-util")]
            Self::Other(source) => source.now(),
        }
    }

    /// Returns the wall-clock time in microseconds since 1970, or 0 before 1970. The safety of locks does not depend on
    /// this time.
    pub(crate) fn wall_us(&self) -> u64 {
        match self {
            Self::Machine => machine::wall_us(),
            #[cfg(feature = "test-util")]
            Self::Other(source) => source.wall_us(),
        }
    }

    /// Starts the thread that fires the alarms, if it is not running.
    pub(crate) fn start(&self) -> io::Result<()> {
        match self {
            Self::Machine => timer::start(),
            #[cfg(feature = "test-util")]
            Self::Other(_) => Ok(()),
        }
    }

    /// Sets an alarm that calls `callback` at the time `at`. If `callback` returns another time, the alarm calls it
    /// again at that time. Dropping the returned alarm cancels it. If the thread that fires the alarms cannot
    /// [`start`](Self::start), the next alarm tries again to start it.
    pub(crate) fn set_alarm(&self, at: Time, callback: Weak<dyn OnAlarm>) -> Alarm {
        match self {
            Self::Machine => Alarm::set(at, callback),
            #[cfg(feature = "test-util")]
            Self::Other(source) => Alarm::of(source.set_alarm(at, callback)),
        }
    }

    /// Returns true if the time is simulated. The client must then read no other clock.
    #[cfg(feature = "test-util")]
    pub(crate) fn is_simulated(&self) -> bool {
        matches!(self, Self::Other(source) if source.is_simulated())
    }
}
