//! A client's clock, and what rings by it.
//!
//! Here live the readings of clocks, alarms and the thread that rings them. No Redis, no runtime, and no
//! rule about what a time means: those are in [`protocol`](crate::protocol).

mod alarms;
mod clock;
pub(crate) mod machine;
#[cfg(feature = "test-util")]
mod shifted;
mod sleeper;
pub(crate) mod timer;
mod wakeup;

pub(crate) use clock::Clock;
#[cfg(feature = "test-util")]
pub(crate) use clock::{SourceAlarm, TimeSource};
#[cfg(feature = "test-util")]
pub(crate) use shifted::Shifted;
pub(crate) use timer::{Alarm, Ring};
pub(crate) use wakeup::Wakeup;
