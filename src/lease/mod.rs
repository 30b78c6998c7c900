//! Leases: acquired locks with a limited validity.
//!
//! Contains the lease, its views, its release, and the registry of a client's leases.
//! [`coordinator`](crate::coordinator) renews leases, and [`protocol`](crate::protocol) defines the
//! rules of validity.

mod backing;
mod calls;
mod ending;
mod limits;
mod observed;
mod registry;
mod release;
mod state;
mod view;

pub(crate) use backing::Backing;
pub use ending::Ended;
pub(crate) use limits::{Limits, to_ttl};
pub(crate) use registry::LeaseRegistry;
pub use release::ReleaseOutcome;
pub(crate) use state::LeaseState;
pub use view::LeaseRef;

use crate::error::ReleaseError;
use crate::protocol::Ttl;
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

/// A held lock. A lease ends at [`valid_until`](LeaseRef::valid_until) unless it is extended. The
/// lease ends earlier if it is [released](Self::release) or dropped. Most methods are on
/// [`LeaseRef`], to which a lease dereferences.
///
/// Dropping a lease releases the lock in the background. The drop never blocks and never panics,
/// with or without a runtime. The client's [runtime](crate::Builder::runtime) must keep running to
/// deliver the release. In a short-lived process, use [`release`](Self::release) or
/// [`Redlock::close`](crate::Redlock::close). Otherwise the lock may remain held until its TTL
/// ends.
///
/// A lease belongs to the process that acquired it. After a fork, the child process has a copy of
/// the lease. Dropping the copy, or closing the client in the child process, does not release the
/// lock. Calling [`release`](Self::release) on the copy releases the lock.
#[must_use = "a lease is released when it is dropped"]
pub struct Lease {
    lease: LeaseRef,
    /// True while this guard is included in the lease's number of guards.
    /// [`release`](Self::release) sets it to false, so that `drop` does not subtract the guard
    /// again.
    is_guard: bool,
}

impl Lease {
    /// Creates a guard that is already included in the lease's number of guards.
    pub(crate) fn guard(lease: LeaseRef) -> Self {
        Self { lease, is_guard: true }
    }

    pub(crate) fn stopping_at(mut self, margin: Option<Duration>) -> Self {
        self.lease.margin = margin.unwrap_or_default();
        self
    }

    /// Returns a view of the lease for other tasks. The view does not keep the lock held.
    pub fn view(&self) -> LeaseRef {
        self.lease.clone()
    }

    /// Releases the lock on all nodes, and returns whether the lease still held the lock. A lock
    /// that has expired is an outcome, not an error. The outcome is determined in a single round,
    /// without retries.
    ///
    /// Returns as soon as a quorum has deleted the key, and takes at most one node timeout. There
    /// are two exceptions. If the runtime that delivers the release is shut down during the call,
    /// the call takes at most one more node timeout. While a node answers earlier pipelines of this
    /// client, each within a node timeout, the call waits for it, for at most ten node timeouts or
    /// 1 s, whichever is longer. An unresponsive node receives the release once it responds again.
    ///
    /// # Errors
    /// [`NoQuorum`](ReleaseError::NoQuorum): too few nodes replied to determine the outcome.
    ///
    /// # Cancel safety
    /// If the future is dropped, the release continues in the background, as when a lease is
    /// dropped.
    pub async fn release(self) -> Result<ReleaseOutcome, ReleaseError> {
        self.end(None).await
    }

    /// Releases the lease, but keeps the resource locked for `cool_down` from now. On each node,
    /// the release replaces the key's value with a value that has no owner and expires after
    /// `cool_down`. Use this for work that must not run too often.
    ///
    /// If other guards of the lease remain, the cool-down is ignored. Otherwise this method behaves
    /// like [`release`](Self::release). `cool_down` is truncated to whole milliseconds. If it is
    /// shorter than 1 ms, the lock is released without a cool-down.
    ///
    /// # Errors
    /// - [`Invalid`](ReleaseError::Invalid): `cool_down` exceeds
    ///   [`max_ttl`](crate::Builder::max_ttl). The resource then stays locked for `max_ttl`.
    /// - [`NoQuorum`](ReleaseError::NoQuorum): too few nodes replied to determine the outcome.
    ///
    /// # Cancel safety
    /// If the future is dropped, the release continues in the background.
    pub async fn release_after(self, cool_down: Duration) -> Result<ReleaseOutcome, ReleaseError> {
        // Without limits, the lease has already been released and needs no cool-down.
        let (ttl, checked) = match self.lease.state().limits() {
            Some(limits) => limits.check_cool_down(cool_down),
            None => (None, Ok(())),
        };
        let ended = self.end(ttl).await;
        checked?;
        ended
    }

    async fn end(mut self, cool_down: Option<Ttl>) -> Result<ReleaseOutcome, ReleaseError> {
        self.is_guard = false;
        let state = self.lease.state();
        match state.leave() {
            0 => state.end(cool_down).await,
            guards => Ok(ReleaseOutcome::StillHeld { guards }),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let state = self.lease.state();
        if self.is_guard && state.leave() == 0 {
            state.end_in_background();
        }
    }
}

impl Deref for Lease {
    type Target = LeaseRef;

    fn deref(&self) -> &LeaseRef {
        &self.lease
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lease.fmt(f)
    }
}
