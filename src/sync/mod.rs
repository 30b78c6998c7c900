//! Mutexes and wakers that survive panics.
//!
//! Contains no clock, no runtime and no decision.

mod lock;
mod safe_waker;

pub(crate) use lock::{lock, try_lock, wait};
pub(crate) use safe_waker::{contain, discard, safely};
