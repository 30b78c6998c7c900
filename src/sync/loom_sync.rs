//! Loom's primitives, which replace the standard library's primitives in `make loom`.

use super::lock as std_lock;
pub(crate) use loom::sync::atomic;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError};

/// A [`loom::sync::Mutex`] whose `try_lock` can also fail.
///
/// Loom explores both orders of two lock operations, but not of a lock and an unlock. Each attempt and each unlock
/// therefore changes an atomic, so that loom runs the attempt both before and after the unlock.
pub(crate) struct Mutex<T> {
    inner: loom::sync::Mutex<T>,
    changes: AtomicUsize,
}

pub(crate) struct MutexGuard<'a, T> {
    inner: loom::sync::MutexGuard<'a, T>,
    changes: &'a AtomicUsize,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { inner: loom::sync::Mutex::new(value), changes: AtomicUsize::new(0) }
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        // After a deadlock, loom unwinds all threads.
        if !std::thread::panicking() {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A mutex of loom, or of the standard library in code without a loom test.
pub(crate) trait Lock {
    type Guard<'a>
    where
        Self: 'a;

    fn wait(&self) -> Self::Guard<'_>;
    fn attempt(&self) -> Option<Self::Guard<'_>>;
}

impl<T> Lock for Mutex<T> {
    type Guard<'a>
        = MutexGuard<'a, T>
    where
        Self: 'a;

    fn wait(&self) -> Self::Guard<'_> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        MutexGuard { inner, changes: &self.changes }
    }

    fn attempt(&self) -> Option<Self::Guard<'_>> {
        self.changes.fetch_add(1, Ordering::Relaxed);
        Some(MutexGuard { inner: self.inner.try_lock().ok()?, changes: &self.changes })
    }
}

impl<T> Lock for std::sync::Mutex<T> {
    type Guard<'a>
        = std::sync::MutexGuard<'a, T>
    where
        Self: 'a;

    fn wait(&self) -> Self::Guard<'_> {
        std_lock::lock(self)
    }

    fn attempt(&self) -> Option<Self::Guard<'_>> {
        std_lock::try_lock(self)
    }
}

impl<L: Lock> Lock for Arc<L> {
    type Guard<'a>
        = L::Guard<'a>
    where
        Self: 'a;

    fn wait(&self) -> Self::Guard<'_> {
        (**self).wait()
    }

    fn attempt(&self) -> Option<Self::Guard<'_>> {
        (**self).attempt()
    }
}

pub(crate) fn lock<L: Lock>(mutex: &L) -> L::Guard<'_> {
    mutex.wait()
}

pub(crate) fn try_lock<L: Lock>(mutex: &L) -> Option<L::Guard<'_>> {
    mutex.attempt()
}

/// A [`std::sync::OnceLock`] that also records its initialization in a loom atomic.
pub(crate) struct OnceLock<T> {
    is_set: AtomicBool,
    value: std::sync::OnceLock<T>,
}

impl<T> OnceLock<T> {
    pub(crate) fn new() -> Self {
        Self { is_set: AtomicBool::new(false), value: std::sync::OnceLock::new() }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        if self.is_set.load(Ordering::Acquire) { self.value.get() } else { None }
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        let result = self.value.set(value);
        self.is_set.store(true, Ordering::Release);
        result
    }

    pub(crate) fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        let value = self.value.get_or_init(init);
        self.is_set.store(true, Ordering::Release);
        value
    }
}
