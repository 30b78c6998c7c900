//! A client's clock and its alarms.
//!
//! Contains clock sources, alarms, and the thread that rings them. Independent of Redis and of any
//! runtime. The rules about times are in [`protocol`](crate::protocol).

mod alarms;
mod clock;
pub(crate) mod machine;
mod ring;
#[cfg(feature = "test-util")]
mod shifted;
mod sleeper;
pub(crate) mod timer;
mod wakeup;

pub(crate) use clock::Clock;
#[cfg(feature = "test-util")]
pub(crate) use clock::TimeSource;
pub(crate) use ring::Ring;
#[cfg(feature = "test-util")]
pub(crate) use ring::SourceAlarm;
#[cfg(feature = "test-util")]
pub(crate) use shifted::Shifted;
pub(crate) use timer::Alarm;
pub(crate) use wakeup::Wakeup;
