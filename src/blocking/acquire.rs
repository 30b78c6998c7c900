//! An acquire in the making.

use super::background::Background;
use super::error::{Error, joined};
use super::lease::Lease;
use crate::client::{TryUsingError, UsingError, finished, sorted};
use crate::error::AcquireError;
use crate::protocol::RetryPolicy;
use std::time::Duration;

/// An acquire with its settings; [`call`](Self::call) makes it. See [`Acquire`](crate::Acquire).
#[derive(Debug)]
#[must_use = "nothing is acquired before call()"]
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

    /// Acquires the lock, waiting as the settings say.
    ///
    /// # Errors
    /// See [`AcquireError`].
    pub fn call(self) -> Result<Lease, Error<AcquireError>> {
        let Self { inner, background } = self;
        let lease = joined(background.wait(inner))?;
        Ok(Lease::new(lease, background))
    }

    /// Acquires the lock, does `work` under it, and releases it. The lease is renewed until the work
    /// ends; **work that hangs keeps the lock**, so set a bound with
    /// [`auto_extend`](Self::auto_extend). The work is not stopped at loss: it can look at
    /// [`is_valid`](crate::LeaseRef::is_valid).
    ///
    /// # Errors
    /// See [`UsingError`]; the output of the work is never thrown away.
    pub fn using<T>(self, work: impl FnOnce(&Lease) -> T) -> Result<T, Error<UsingError<T>>> {
        let Self { inner, background } = self;
        let lease = Self::new(inner.renewed(), background)
            .call()
            .map_err(|error| error.map(UsingError::from))?;
        let output = work(&lease);
        let was_valid = lease.is_valid();
        // Where it could wait for the lock it can wait for the release.
        Ok(finished(output, was_valid, lease.release_here())?)
    }

    /// The same as [`using`](Self::using) for work that can fail: its error is kept apart from those
    /// of the lock, which is released in any case.
    ///
    /// # Errors
    /// See [`TryUsingError`]; what the work returned is never thrown away.
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
