//! [`Lease`]: a held lock of a blocking client.

use super::error::{Error, flatten_result};
use super::waiting::{CloseOnDrop, begin, wait, wait_here, wait_within};
use crate::error::{DowngradeError, ExtendError, ReenterError, ReleaseError};
use crate::lease::{Ended, LeaseRef, ReleaseOutcome};
use crate::protocol::Loss;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// A lock that a blocking client holds; see [`Lease`](crate::Lease). Dropping the lease releases
/// the lock in the background.
#[derive(Debug)]
#[must_use = "a lease is released when it is dropped"]
pub struct Lease {
    // Fields are dropped in this order. `inner` submits the release of the lease, and `client` waits
    // for the release if it is the last handle.
    inner: crate::Lease,
    client: Arc<CloseOnDrop>,
}

impl Lease {
    pub(super) fn new(inner: crate::Lease, client: Arc<CloseOnDrop>) -> Self {
        Self { inner, client }
    }

    /// Creates an additional guard of this lease, without I/O; see [`LeaseRef::reenter`].
    ///
    /// # Errors
    /// Returns [`Lost`](ReenterError::Lost) or [`Released`](ReenterError::Released) if the lease
    /// has ended.
    pub fn reenter(&self) -> Result<Self, ReenterError> {
        let inner = self.inner.reenter()?;
        Ok(Self::new(inner, self.client.clone()))
    }

    /// Extends the lease, so that its keys expire `ttl` from now. Blocks for at most one node
    /// timeout; see [`LeaseRef::extend`].
    ///
    /// # Errors
    /// Returns [`InsideRuntime`](Error::InsideRuntime) if called on a thread that is polling an
    /// async task. For all other errors, see [`ExtendError`].
    pub fn extend(&self, ttl: Duration) -> Result<(), Error<ExtendError>> {
        flatten_result(wait(self.inner.extend(ttl)))
    }

    /// Ensures that at least `validity` remains when this method returns. Blocks for at most one
    /// node timeout; see [`LeaseRef::ensure`].
    ///
    /// # Errors
    /// Returns [`InsideRuntime`](Error::InsideRuntime) if called on a thread that is polling an
    /// async task. For all other errors, see [`ExtendError`].
    pub fn ensure(&self, validity: Duration) -> Result<(), Error<ExtendError>> {
        flatten_result(wait(self.inner.ensure(validity)))
    }

    /// Makes the lease of a writer the lease of a reader. Blocks for at most one node timeout; see
    /// [`LeaseRef::downgrade`].
    ///
    /// # Errors
    /// Returns [`InsideRuntime`](Error::InsideRuntime) if called on a thread that is polling an
    /// async task. For all other errors, see [`DowngradeError`].
    pub fn downgrade(&self) -> Result<(), Error<DowngradeError>> {
        flatten_result(wait(self.inner.downgrade()))
    }

    /// Waits until the lease is lost, for at most `limit`, and returns the reason; see
    /// [`LeaseRef::lost`]. Returns `None` if the lease is still held after `limit`, or as soon as
    /// the lease is released. On a thread that is polling an async task, this method returns the
    /// current state without waiting.
    pub fn lost_within(&self, limit: Duration) -> Option<Loss> {
        match wait_within(limit, self.inner.ended()) {
            Ok(Some(Ended::Lost(loss))) => Some(loss),
            Ok(Some(Ended::Released) | None) => None,
            Err(_) => self.inner.loss(),
        }
    }

    /// Releases the lock on all nodes, and returns whether the lease still held the lock; see
    /// [`Lease::release`](crate::Lease::release). On a thread that is polling an async task, this
    /// method does not wait, and the release continues in the background.
    ///
    /// # Errors
    /// Returns [`InsideRuntime`](Error::InsideRuntime) if called on a thread that is polling an
    /// async task. For all other errors, see [`ReleaseError`].
    pub fn release(self) -> Result<ReleaseOutcome, Error<ReleaseError>> {
        flatten_result(wait(self.inner.release()))
    }

    /// Releases the lease, but keeps the resource locked for `cool_down` from now; see
    /// [`Lease::release_after`](crate::Lease::release_after). On a thread that is polling an async
    /// task, this method sends the commands to the nodes but does not wait for their replies.
    ///
    /// # Errors
    /// Returns [`InsideRuntime`](Error::InsideRuntime) if called on a thread that is polling an
    /// async task. For all other errors, see [`ReleaseError`].
    pub fn release_after(self, cool_down: Duration) -> Result<ReleaseOutcome, Error<ReleaseError>> {
        // `_client` is dropped last: if it is the last handle, its drop waits for the release.
        let Self { inner, client: _client } = self;
        let mut releasing = pin!(inner.release_after(cool_down));
        let released = wait(releasing.as_mut());
        if released.is_err() {
            // Dropping an unpolled future would release the lock without the cool-down.
            let _ = begin(releasing.as_mut());
        }
        flatten_result(released)
    }
}

impl Lease {
    /// Releases the lock. The caller must have checked that the thread is not polling a task.
    pub(super) fn release_here(self) -> Result<ReleaseOutcome, ReleaseError> {
        wait_here(self.inner.release())
    }
}

impl Deref for Lease {
    type Target = LeaseRef;

    fn deref(&self) -> &LeaseRef {
        &self.inner
    }
}
