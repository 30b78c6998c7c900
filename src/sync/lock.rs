//! Locks that a panic of another thread does not poison.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`. No code of this crate panics while it holds a lock; if it did, what the lock guards
/// would still be whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
