//! A fenced resource in the memory of one process, for a server that protects its own state.

use crate::stale::Stale;
use quorlock::FencingToken;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value that can only be used with a fencing token at least as high as every earlier one.
///
/// The value and the token must be stored together. A server that restarts with the value but without the token would
/// accept a stale holder.
#[derive(Debug, Default)]
pub(crate) struct FencedCell<T> {
    inner: Mutex<Inner<T>>,
}

#[derive(Debug, Default)]
struct Inner<T> {
    value: T,
    /// The highest token so far. `None` if no token has been used, so any token is accepted.
    highest: Option<FencingToken>,
}

impl<T> FencedCell<T> {
    /// Creates a cell that accepts any token at first.
    pub(crate) fn new(value: T) -> Self {
        Self { inner: Mutex::new(Inner { value, highest: None }) }
    }

    /// Runs `work` on the value, unless a higher token has been used. From then on, lower tokens are rejected, even if
    /// `work` only reads the value.
    pub(crate) fn with<R>(
        &self,
        token: FencingToken,
        work: impl FnOnce(&mut T) -> R,
    ) -> Result<R, Stale> {
        // The mutex is held during the check and the work, so that both are one atomic step.
        let mut inner = self.lock();
        if let Some(highest) = inner.highest.filter(|highest| token < *highest) {
            return Err(Stale { token, highest });
        }
        inner.highest = Some(token);
        Ok(work(&mut inner.value))
    }

    /// Locks the cell, even if it is poisoned. After a panic in `work`, the value keeps its state and the token stays
    /// recorded.
    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
