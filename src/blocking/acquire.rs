//! An acquire in the making.

use super::background::Background;
use super::lease::Lease;
use crate::error::AcquireError;
use crate::protocol::RetryPolicy;
use crate::release::ReleaseOutcome;
use crate::using::UsingError;
use std::time::Duration;

/// An acquire with its settings; [`call`](Self::call) makes it. See [`Acquire`](crate::Acquire).
#[derive(Debug)]
#[must_use = "nothing is acquired before call()"]
pub struct Acquire {
    inner: crate::Acquire,
    background: Background,
}

/// Hands settings on to the async builder.
macro_rules! settings {
    ($($name:ident($($argument:ident: $type:ty)?);)*) => {$(
        #[doc = concat!("See [`Acquire::", stringify!($name), "`](crate::Acquire::", stringify!($name), ").")]
        pub fn $name(self $(, $argument: $type)?) -> Self {
            Self { inner: self.inner.$name($($argument)?), ..self }
        }
    )*};
}

impl Acquire {
    pub(super) fn new(inner: crate::Acquire, background: Background) -> Self {
        Self { inner, background }
    }

    settings! {
        ttl(ttl: Duration);
        wait(wait: Duration);
        retry(policy: RetryPolicy);
        max_attempts(attempts: u32);
        give_up_early();
        auto_extend(max_hold: Duration);
        metadata(metadata: impl Into<String>);
        fenced();
    }

    /// Acquires the lock, waiting as the settings say.
    ///
    /// # Errors
    /// See [`AcquireError`].
    pub fn call(self) -> Result<Lease, AcquireError> {
        let Self { inner, background } = self;
        let won = background.wait(inner);
        won.map_err(|_| AcquireError::InsideRuntime)?.map(|lease| Lease::new(lease, background))
    }

    /// Acquires the lock, does `work` under it, and releases it. The work is not stopped at loss: it
    /// can look at [`is_valid`](crate::LeaseRef::is_valid).
    ///
    /// # Errors
    /// See [`UsingError`]; the output of the work is never thrown away.
    pub fn using<T>(self, work: impl FnOnce(&Lease) -> T) -> Result<T, UsingError<T>> {
        let lease = self.call()?;
        let output = work(&lease);
        let is_valid = lease.is_valid();
        match lease.release() {
            Ok(ReleaseOutcome::Released | ReleaseOutcome::StillHeld { .. }) if is_valid => {
                Ok(output)
            }
            Ok(found) => Err(UsingError::Overrun { output, found }),
            Err(error) => Err(UsingError::Unreleased { output, error }),
        }
    }
}
