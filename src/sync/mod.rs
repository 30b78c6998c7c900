//! What every thread of ours needs around a mutex and a waker.
//!
//! Here live tools that know nothing of locks on Redis. No clock, no runtime, no decision.

mod lock;
mod safe_waker;

pub(crate) use lock::{lock, wait};
#[cfg(test)]
pub(crate) use safe_waker::tests;
pub(crate) use safe_waker::{contain, discard, safely};
