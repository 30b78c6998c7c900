//! Primitives of loom in place of those of the standard library, for `make loom`.

use super::lock as std_lock;
use loom::sync::atomic::{AtomicBool, Ordering};
pub(crate) use loom::sync::{Mutex, MutexGuard, atomic};
use std::sync::{Arc, PoisonError};

/// A mutex of loom, or of the standard library in code that has no loom test.
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
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attempt(&self) -> Option<Self::Guard<'_>> {
        self.try_lock().ok()
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

/// [`std::sync::OnceLock`] with an atomic of loom.
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
