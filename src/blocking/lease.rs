//! A lock with an end.

use super::background::Background;
use super::error::{Error, joined};
use crate::error::{ExtendError, ReenterError, ReleaseError};
use crate::lease::{Ended, LeaseRef, ReleaseOutcome};
use crate::protocol::Loss;
use std::ops::Deref;
use std::pin::pin;
use std::time::Duration;

/// A held lock; see [`Lease`](crate::Lease). Dropping it releases it in the background.
#[derive(Debug)]
#[must_use = "a lease is released when it is dropped"]
pub struct Lease {
    // Dropped in this order: what is released is delivered by the background.
    inner: crate::Lease,
    background: Background,
}

impl Lease {
    pub(super) fn new(inner: crate::Lease, background: Background) -> Self {
        Self { inner, background }
    }

    /// Locks again what this lease holds; see [`LeaseRef::reenter`].
    ///
    /// # Errors
    /// It is not held any more.
    pub fn reenter(&self) -> Result<Self, ReenterError> {
        let inner = self.inner.reenter()?;
        Ok(Self::new(inner, self.background.clone()))
    }

    /// Lets the lock stand for `ttl` from now on; see [`LeaseRef::extend`].
    ///
    /// # Errors
    /// See [`ExtendError`].
    pub fn extend(&self, ttl: Duration) -> Result<(), Error<ExtendError>> {
        joined(self.background.wait(self.inner.extend(ttl)))
    }

    /// Sees to it that at least `validity` is left; see [`LeaseRef::ensure`].
    ///
    /// # Errors
    /// See [`ExtendError`].
    pub fn ensure(&self, validity: Duration) -> Result<(), Error<ExtendError>> {
        joined(self.background.wait(self.inner.ensure(validity)))
    }

    /// Waits until the lease is lost, or for so long; see [`LeaseRef::lost`]. `None` if it is still
    /// held then, and at once if it is released meanwhile. Inside of a runtime it does not wait.
    pub fn lost_within(&self, limit: Duration) -> Option<Loss> {
        match self.background.wait_within(limit, self.inner.ended()) {
            Ok(Some(Ended::Lost(loss))) => Some(loss),
            Ok(Some(Ended::Released) | None) => None,
            Err(_) => self.inner.loss(),
        }
    }

    /// Ends the lease on all nodes, and tells whether it was held to the end; see
    /// [`Lease::release`](crate::Lease::release).
    ///
    /// # Errors
    /// See [`ReleaseError`].
    pub fn release(self) -> Result<ReleaseOutcome, Error<ReleaseError>> {
        joined(self.background.wait(self.inner.release()))
    }

    /// Ends the lease, but lets nobody have the lock for a while; see
    /// [`Lease::release_after`](crate::Lease::release_after). Inside of a runtime it does not wait for
    /// the nodes, which are told all the same.
    ///
    /// # Errors
    /// See [`ReleaseError`].
    pub fn release_after(self, cool_down: Duration) -> Result<ReleaseOutcome, Error<ReleaseError>> {
        let Self { inner, background } = self;
        let mut releasing = pin!(inner.release_after(cool_down));
        let released = background.wait(releasing.as_mut());
        if released.is_err() {
            // Else the lock would be free at once.
            let _ = background.begin(releasing.as_mut());
        }
        joined(released)
    }
}

impl Lease {
    /// Ends the lease, on a thread that is known to be no task's.
    pub(super) fn release_here(self) -> Result<ReleaseOutcome, ReleaseError> {
        self.background.wait_here(self.inner.release())
    }
}

impl Deref for Lease {
    type Target = LeaseRef;

    fn deref(&self) -> &LeaseRef {
        &self.inner
    }
}
