//! A resource in the memory of one process: what a server does that guards something itself.

use crate::stale::Stale;
use quorlock::FencingToken;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value that refuses whoever shows a lower token than it has seen.
///
/// The mark is kept with the value, so both must last equally long: a server that restarts with the
/// value and without the mark would let a stale holder in.
#[derive(Debug, Default)]
pub(crate) struct FencedCell<T> {
    inner: Mutex<Inner<T>>,
}

#[derive(Debug, Default)]
struct Inner<T> {
    value: T,
    /// The highest token seen; none is refused before the first.
    highest: Option<FencingToken>,
}

impl<T> FencedCell<T> {
    /// A cell that has seen no token.
    pub(crate) fn new(value: T) -> Self {
        Self { inner: Mutex::new(Inner { value, highest: None }) }
    }

    /// Does `work` on the value, unless a higher token was seen. From then on, every lower one is
    /// refused: also if `work` only reads.
    pub(crate) fn with<R>(
        &self,
        token: FencingToken,
        work: impl FnOnce(&mut T) -> R,
    ) -> Result<R, Stale> {
        // The check and the work are one step, because the mutex is held for both.
        let mut inner = self.lock();
        if let Some(highest) = inner.highest.filter(|highest| token < *highest) {
            return Err(Stale { token, highest });
        }
        inner.highest = Some(token);
        Ok(work(&mut inner.value))
    }

    /// Work that panics leaves the value as it is, and the mark in force.
    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
