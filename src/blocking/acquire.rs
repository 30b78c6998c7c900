//! [`Acquire`]: options of a blocking acquire.

use super::error::{Error, flatten_result};
use super::lease::Lease;
use super::waiting::{CloseOnDrop, wait};
use crate::client::{TryUsingError, UsingError, split_errors, work_result};
use crate::error::AcquireError;
use crate::protocol::RetryPolicy;
use std::sync::Arc;
use std::time::Duration;

macro_rules! settings {
    ($($(#[$summary:meta])* $name:ident($($argument:ident: $type:ty)?);)*) => {$(
        $(#[$summary])*
        #[doc = ""]
        #[doc = concat!("See [`Acquire::", stringify!($name), "`](crate::Acquire::", stringify!($name), ").")]
        pub fn $name(self $(, $argument: $type)?) -> Self {
            Self { inner: self.inner.$name($($argument)?), ..self }
        }
    )*};
}

/// Options of a blocking acquire; see [`Acquire`](crate::Acquire). [`call`](Self::call) acquires
/// the lock.
#[derive(Debug)]
#[must_use = "nothing is acquired until call() is called"]
pub struct Acquire {
    inner: crate::Acquire,
    client: Arc<CloseOnDrop>,
}

impl Acquire {
    pub(super) fn new(inner: crate::Acquire, client: Arc<CloseOnDrop>) -> Self {
        Self { inner, client }
    }

    settings! {
        /// Sets how long a node keeps the lock unless the lease is extended or released.
        ttl(ttl: Duration);
        /// Sets the total time that the acquire may take, including all attempts.
        wait(wait: Duration);
        /// Waits for the lock without a time limit.
        wait_forever();
        /// Sets the policy for retries after a refused attempt.
        retry(policy: RetryPolicy);
        /// Limits the number of attempts.
        max_attempts(attempts: u32);
        /// Fails the acquire as soon as the holder's remaining TTL exceeds the remaining wait time.
        give_up_early();
        /// Enables background renewal of the lease, for at most `max_hold`.
        auto_extend(max_hold: Duration);
        /// Enables background renewal of the lease, without a limit.
        auto_extend_forever();
        /// Keeps the resource locked for at least `time`, even if the lease is released earlier.
        at_least(time: Duration);
        /// Sets the text that is stored with the lock and shown in its status.
        metadata(metadata: impl Into<String>);
        /// Gives the lease a fencing token.
        fenced();
        /// Disables fencing tokens for this acquire, if the client's settings enable them.
        without_fencing();
        /// Sets the class of the lock for events and metrics.
        class(class: &'static str);
    }

    /// Acquires the lock. Blocks until the lock is acquired or the acquire fails.
    /// [`wait`](Self::wait) limits the total time.
    ///
    /// # Errors
    /// Returns [`InsideRuntime`](Error::InsideRuntime) if called on a thread that is polling an
    /// async task. For all other errors, see [`AcquireError`].
    pub fn call(self) -> Result<Lease, Error<AcquireError>> {
        let Self { inner, client } = self;
        let lease = flatten_result(wait(inner))?;
        Ok(Lease::new(lease, client))
    }

    /// Acquires the lock, runs `work`, and releases the lock. The lease is renewed in the
    /// background until `work` returns. **Work that never returns keeps the lock indefinitely**, so
    /// set a limit with [`auto_extend`](Self::auto_extend). If the lease is lost, the work is not
    /// stopped, but it can check [`is_valid`](crate::LeaseRef::is_valid).
    ///
    /// # Errors
    /// Returns [`InsideRuntime`](Error::InsideRuntime) if called on a thread that is polling an
    /// async task, without running the work. For all other errors, see [`UsingError`]. If the work
    /// ran, the error contains its output.
    pub fn using<T>(self, work: impl FnOnce(&Lease) -> T) -> Result<T, Error<UsingError<T>>> {
        let Self { inner, client } = self;
        let lease = Self::new(inner.renewed(), client)
            .call()
            .map_err(|error| error.map(UsingError::from))?;
        let output = work(&lease);
        let was_valid = lease.is_valid();
        // `call` has already checked that this thread can block.
        Ok(work_result(output, was_valid, lease.release_here())?)
    }

    /// Acquires the lock, runs `work`, which returns a `Result`, and releases the lock; see
    /// [`using`](Self::using). [`TryUsingError`] has separate variants for errors of the work and
    /// errors of the lock. The lock is released in both cases.
    ///
    /// # Errors
    /// Returns [`InsideRuntime`](Error::InsideRuntime) if called on a thread that is polling an
    /// async task, without running the work. For all other errors, see [`TryUsingError`]. If the
    /// work ran, the error contains its output or its error.
    pub fn try_using<T, E>(
        self,
        work: impl FnOnce(&Lease) -> Result<T, E>,
    ) -> Result<T, Error<TryUsingError<T, E>>> {
        match self.using(work) {
            Err(Error::InsideRuntime) => Err(Error::InsideRuntime),
            Err(Error::Failed(error)) => split_errors(Err(error)).map_err(Error::Failed),
            Ok(done) => split_errors(Ok(done)).map_err(Error::Failed),
        }
    }
}
