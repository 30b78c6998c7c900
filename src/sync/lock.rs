//! Mutex operations that ignore poisoning.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Locks `mutex`, even if it is poisoned. No code of this crate panics while it holds a lock. If it did, the guarded
/// value would still be consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks `mutex` if no other thread holds the lock. Ignores poisoning.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Releases the lock, waits until `condition` is notified or `limit` has passed, and locks again. Without a `limit`,
/// the wait is unlimited. Spurious wake-ups are possible.
pub(crate) fn wait<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    limit: Option<Duration>,
) -> MutexGuard<'a, T> {
    match limit {
        Some(limit) => {
            let waited = condition.wait_timeout(guard, limit);
            waited.unwrap_or_else(PoisonError::into_inner).0
        }
        None => condition.wait(guard).unwrap_or_else(PoisonError::into_inner),
    }
}
