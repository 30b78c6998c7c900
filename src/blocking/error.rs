//! Errors of blocking methods.

use thiserror::Error;

/// Error returned when a blocking method is called on a thread that is polling an async task. Such
/// a thread must not block: use the async client there, or call the method in
/// `tokio::task::spawn_blocking`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("called inside an async runtime: use the async client there, or spawn_blocking")]
pub struct InsideRuntime;

/// Error returned by a blocking method: either the error of the async method, or [`InsideRuntime`].
///
/// ```
/// use quorlock::{AcquireError, blocking};
///
/// fn is_held(error: &blocking::Error<AcquireError>) -> bool {
///     error.reason().is_some_and(AcquireError::is_contended)
/// }
/// # assert!(!is_held(&blocking::Error::InsideRuntime));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Error<E> {
    /// The calling thread is polling an async task and must not block; see [`InsideRuntime`].
    #[error("{InsideRuntime}")]
    InsideRuntime,
    /// The operation failed with the error of the async method.
    #[error(transparent)]
    Failed(#[from] E),
}

impl<E> Error<E> {
    /// Returns the error of the async method, or `None` for [`InsideRuntime`](Self::InsideRuntime).
    pub fn reason(&self) -> Option<&E> {
        match self {
            Self::InsideRuntime => None,
            Self::Failed(reason) => Some(reason),
        }
    }

    pub(super) fn map<F>(self, change: impl FnOnce(E) -> F) -> Error<F> {
        match self {
            Self::InsideRuntime => Error::InsideRuntime,
            Self::Failed(reason) => Error::Failed(change(reason)),
        }
    }
}

pub(super) fn flatten_result<T, E>(
    waited: Result<Result<T, E>, InsideRuntime>,
) -> Result<T, Error<E>> {
    match waited {
        Ok(done) => done.map_err(Error::Failed),
        Err(InsideRuntime) => Err(Error::InsideRuntime),
    }
}
