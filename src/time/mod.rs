//! A client's clock and its alarms.
//!
//! Contains the clock sources, the alarms, and the thread that rings them. This module depends neither on Redis nor on
//! an async runtime. The rules about times are in [`protocol`](crate::protocol).

mod alarms;
mod clock;
pub(crate) mod machine;
mod ring;
mod sleeper;
pub(crate) mod timer;
mod wakeup;

pub(crate) use clock::Clock;
#[cfg(feature = "test-util")]
pub(crate) use clock::TimeSource;
pub(crate) use ring::Ring;
#[cfg(feature = "test-util")]
pub(crate) use ring::SourceAlarm;
pub(crate) use timer::Alarm;
