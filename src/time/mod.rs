//! A client's clock, and what rings by it.
//!
//! Here live the readings of clocks, alarms and the thread that rings them. No Redis, no runtime, and no
//! rule about what a time means: those are in [`protocol`](crate::protocol).

pub(crate) mod machine;
#[cfg(feature = "test-util")]
mod shifted;
mod sleeper;
mod source;
pub(crate) mod timer;
mod wakeup;

pub(crate) use machine as clock;
#[cfg(feature = "test-util")]
pub(crate) use shifted::Shifted;
pub(crate) use source::Clock;
pub(crate) use timer::{Alarm, Ring};
pub(crate) use wakeup::Wakeup;
