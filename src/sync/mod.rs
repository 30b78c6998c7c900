//! Mutexes and wakers that survive panics, the library's threads, per-process values, and the primitives that `make loom`
//! replaces.
//!
//! This module contains no clock, no runtime and no protocol decisions. Code with a loom test imports its mutexes and
//! atomics from here.

mod lock;
#[cfg(all(test, quorlock_loom))]
mod loom_sync;
mod per_process;
mod process_bound;
mod safe_waker;
pub(crate) mod threads;

pub(crate) use lock::wait;
#[cfg(not(all(test, quorlock_loom)))]
pub(crate) use lock::{lock, try_lock};
#[cfg(all(test, quorlock_loom))]
pub(crate) use loom_sync::{Mutex, MutexGuard, OnceLock, atomic, lock, try_lock};
pub(crate) use per_process::PerProcess;
pub(crate) use process_bound::ProcessBound;
pub(crate) use safe_waker::{catch_panic, drop_panic_payload, with_safe_waker};
#[cfg(not(all(test, quorlock_loom)))]
pub(crate) use std::sync::{Mutex, MutexGuard, OnceLock, atomic};
