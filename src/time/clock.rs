//! A client's clock, and what rings by it.

use super::machine;
use super::ring::Ring;
#[cfg(feature = "test-util")]
use super::ring::SourceAlarm;
use super::timer::Alarm;
use crate::protocol::Time;
#[cfg(feature = "test-util")]
use std::sync::Arc;
use std::sync::Weak;

#[cfg(feature = "test-util")]
/// A clock that replaces the machine's clock for some clients.
pub(crate) trait TimeSource: Send + Sync {
    /// Time since some origin. Never goes back.
    fn now(&self) -> Time;

    /// The wall clock, in microseconds since 1970; 0 before.
    fn wall_us(&self) -> u64;

    /// Rings `bell` at `at`, and then whenever it asks to be rung again, until the alarm is dropped.
    fn set_alarm(&self, at: Time, bell: Weak<dyn Ring>) -> Box<dyn SourceAlarm>;

    /// True if no other clock is to be read beside it, tokio's neither.
    fn is_world(&self) -> bool {
        false
    }
}

/// The clock that a client was given: its leases, waits and alarms go by it. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) enum Clock {
    /// The machine's. Its alarms are rung by one thread for the whole process.
    #[default]
    Machine,
    #[cfg(feature = "test-util")]
    Other(Arc<dyn TimeSource>),
}

impl Clock {
    /// Reads it. Never goes back.
    pub(crate) fn now(&self) -> Time {
        match self {
            Self::Machine => machine::now(),
            #[cfg(feature = "test-util")]
            Self::Other(source) => source.now(),
        }
    }

    /// The wall clock, in microseconds since 1970; 0 before. For hints only: no safety hangs on it.
    pub(crate) fn wall_us(&self) -> u64 {
        match self {
            Self::Machine => machine::wall_us(),
            #[cfg(feature = "test-util")]
            Self::Other(source) => source.wall_us(),
        }
    }

    /// Rings `bell` at `at`, and then whenever it asks to be rung again, until the alarm is dropped.
    pub(crate) fn set_alarm(&self, at: Time, bell: Weak<dyn Ring>) -> Alarm {
        match self {
            Self::Machine => Alarm::set(at, bell),
            #[cfg(feature = "test-util")]
            Self::Other(source) => Alarm::of(source.set_alarm(at, bell)),
        }
    }

    /// True if no other clock is to be read beside it.
    #[cfg(feature = "test-util")]
    pub(crate) fn is_world(&self) -> bool {
        matches!(self, Self::Other(source) if source.is_world())
    }
}
