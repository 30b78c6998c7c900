//! [`Acquire`]: options of a blocking acquire.

use super::background::Background;
use super::error::{Error, joined};
use super::lease::Lease;
use crate::client::{TryUsingError, UsingError, finished, sorted};
use crate::error::AcquireError;
use crate::protocol::RetryPolicy;
use std::time::Duration;

/// Blocking acquire operation and its options; see [`Acquire`](crate::Acquire).
/// [`call`](Self::call) runs the operation.
#[derive(Debug)]
#[must_use = "nothing is acquired until call() is called"]
pub struct Acquire {
    inner: crate::Acquire,
    background: Background,
}

impl Acquire {
    pub(super) fn new(inner: crate::Acquire, background: Background) -> Self {
        Self { inner, background }
    }

    lock_settings!(Acquire);

    /// Acquires the lock. Blocks until the lock is acquired or the acquire fails.
    /// [`wait`](Self::wait) limits how long this takes.
    ///
    /// # Errors
    /// Returns [`InsideRuntime`](Error::InsideRuntime) on a thread that is polling an async task.
    /// For all other errors, see [`AcquireError`].
    pub fn call(self) -> Result<Lease, Error<AcquireError>> {
        let Self { inner, background } = self;
        let lease = joined(background.wait(inner))?;
        Ok(Lease::new(lease, background))
    }

    /// Acquires the lock, runs `work`, and releases the lock. The lease is renewed in the
    /// background until `work` returns. **Work that never returns keeps the lock indefinitely**, so
    /// set a limit with [`auto_extend`](Self::auto_extend). If the lease is lost, the work is not
    /// stopped, but it can check [`is_valid`](crate::LeaseRef::is_valid).
    ///
    /// # Errors
    /// Returns [`InsideRuntime`](Error::InsideRuntime) on a thread that is polling an async task,
    /// without running the work. For all other errors, see [`UsingError`]. If the work ran, the
    /// error contains its output.
    pub fn using<T>(self, work: impl FnOnce(&Lease) -> T) -> Result<T, Error<UsingError<T>>> {
        let Self { inner, background } = self;
        let lease = Self::new(inner.renewed(), background)
            .call()
            .map_err(|error| error.map(UsingError::from))?;
        let output = work(&lease);
        let was_valid = lease.is_valid();
        // The acquire has checked that this thread can block.
        Ok(finished(output, was_valid, lease.release_here())?)
    }

    /// Like [`using`](Self::using), for work that returns a `Result`. Errors of the work and errors
    /// of the lock are separate variants of [`TryUsingError`]. The lock is released in both cases.
    ///
    /// # Errors
    /// Returns [`InsideRuntime`](Error::InsideRuntime) on a thread that is polling an async task,
    /// without running the work. For all other errors, see [`TryUsingError`]. If the work ran, the
    /// error contains its output or its error.
    pub fn try_using<T, E>(
        self,
        work: impl FnOnce(&Lease) -> Result<T, E>,
    ) -> Result<T, Error<TryUsingError<T, E>>> {
        match self.using(work) {
            Err(Error::InsideRuntime) => Err(Error::InsideRuntime),
            Err(Error::Failed(error)) => sorted(Err(error)).map_err(Error::Failed),
            Ok(done) => sorted(Ok(done)).map_err(Error::Failed),
        }
    }
}
