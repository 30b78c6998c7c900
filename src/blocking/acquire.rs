//! [`Acquire`]: options of a blocking acquire.

use super::background::Background;
use super::error::{Error, joined};
use super::lease::Lease;
use crate::client::{TryUsingError, UsingError, finished, sorted};
use crate::error::AcquireError;
use crate::protocol::RetryPolicy;
use std::time::Duration;

/// An acquire with its options; [`call`](Self::call) executes it. See [`Acquire`](crate::Acquire).
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

    settings! { Acquire:
        ttl(ttl: Duration);
        wait(wait: Duration);
        retry(policy: RetryPolicy);
        max_attempts(attempts: u32);
        give_up_early();
        auto_extend(max_hold: Duration);
        at_least(time: Duration);
        auto_extend_forever();
        metadata(metadata: impl Into<String>);
        fenced();
        class(class: &'static str);
    }

    /// Acquires the lock. Blocks until the lock is acquired or the acquire fails;
    /// [`wait`](Self::wait) limits the time.
    ///
    /// # Errors
    /// [`InsideRuntime`](Error::InsideRuntime) on a thread that is polling an async task; otherwise
    /// see [`AcquireError`].
    pub fn call(self) -> Result<Lease, Error<AcquireError>> {
        let Self { inner, background } = self;
        let lease = joined(background.wait(inner))?;
        Ok(Lease::new(lease, background))
    }

    /// Acquires the lock, runs `work`, and releases the lock. The lease is renewed until `work`
    /// returns. **Work that never returns keeps the lock**: set a limit with
    /// [`auto_extend`](Self::auto_extend). The work is not stopped when the lease is lost; it can
    /// check [`is_valid`](crate::LeaseRef::is_valid).
    ///
    /// # Errors
    /// [`InsideRuntime`](Error::InsideRuntime) on a thread that is polling an async task; otherwise
    /// see [`UsingError`]. The output of the work is always returned, in the error if necessary.
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

    /// Like [`using`](Self::using), for work that can fail. The work's error and the lock's errors
    /// are separate variants. The lock is released in either case.
    ///
    /// # Errors
    /// [`InsideRuntime`](Error::InsideRuntime) on a thread that is polling an async task; otherwise
    /// see [`TryUsingError`]. The result of the work is always returned, in the error if necessary.
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
