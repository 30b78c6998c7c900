//! A fenced resource in the memory of one process, for a server that protects its own state.

use crate::stale::Stale;
use quorlock::FencingToken;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value that rejects tokens lower than the highest one it has seen.
///
/// The value and the token must be stored together: a server that restarts with the value and without the token
/// would accept a stale holder.
#[derive(Debug, Default)]
pub(crate) struct FencedCell<T> {
    inner: Mutex<Inner<T>>,
}

#[derive(Debug, Default)]
struct Inner<T> {
    value: T,
    /// The highest token seen. `None` accepts every token.
    highest: Option<FencingToken>,
}

impl<T> FencedCell<T> {
    /// Creates a cell that has seen no token.
    pub(crate) fn new(value: T) -> Self {
        Self { inner: Mutex::new(Inner { value, highest: None }) }
    }

    /// Runs `work` on the value, unless a higher token was seen. From then on lower tokens are rejected, even if
    /// `work` only reads.
    pub(crate) fn with<R>(
        &self,
        token: FencingToken,
        work: impl FnOnce(&mut T) -> R,
    ) -> Result<R, Stale> {
        // The mutex is held for the check and the work, so they are one atomic step.
        let mut inner = self.lock();
        if let Some(highest) = inner.highest.filter(|highest| token < *highest) {
            return Err(Stale { token, highest });
        }
        inner.highest = Some(token);
        Ok(work(&mut inner.value))
    }

    /// After a panic in `work`, the value keeps its state and the token stays recorded.
    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
