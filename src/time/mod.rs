//! A client's clock, its alarms, and the thread that fires them.
//!
//! This module depends neither on Redis nor on an async runtime. The rules about times are in
//! [`protocol`](crate::protocol).

mod alarms;
mod clock;
pub(crate) mod machine;
mod on_alarm;
mod parker;
pub(crate) mod timer;
mod wakeup;

pub(crate) use clock::Clock;
#[cfg(feature = "test-util")]
pub(crate) use clock::TimeSource;
pub(crate) use on_alarm::OnAlarm;
#[cfg(feature = "test-util")]
pub(crate) use on_alarm::SourceAlarm;
pub(crate) use timer::Alarm;
