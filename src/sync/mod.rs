//! Mutexes and wakers that survive panics, and values of a process.
//!
//! Contains no clock, no runtime and no decision.

mod lock;
mod per_process;
mod safe_waker;

pub(crate) use lock::{lock, try_lock, wait};
pub(crate) use per_process::PerProcess;
pub(crate) use safe_waker::{contain, discard, safely};
