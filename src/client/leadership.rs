//! The leadership of an election: a lease that renews itself.

use crate::error::{AcquireError, ReleaseError};
use crate::lease::{Lease, LeaseRef, ReleaseOutcome};
use crate::observe::FencingToken;
use std::fmt;
use std::ops::Deref;

/// The leadership of an [`Election`](crate::Election): a [`Lease`] with a fencing token that is renewed in the
/// background. Dropping it resigns in the background.
///
/// It dereferences to [`LeaseRef`], so it has the methods of a lease. Among them are [`lost`](LeaseRef::lost), which
/// resolves before another candidate can lead, [`stopping`](LeaseRef::stopping), which resolves at the [renew
/// deadline](crate::ElectionBuilder::renew_deadline), and [`view`](Self::view) for other tasks.
#[must_use = "a leader resigns when its leadership is dropped"]
pub struct Leadership {
    lease: Lease,
    token: FencingToken,
}

impl Leadership {
    pub(super) fn new(lease: Lease) -> Result<Self, AcquireError> {
        let reason = || AcquireError::Internal { reason: "a lease without a token".to_owned() };
        let token = lease.token().ok_or_else(reason)?;
        Ok(Self { lease, token })
    }

    /// Returns true while this process leads. Returns false once the leadership has ended, at the latest when its
    /// validity ends: also in the first call after the process or the machine was suspended. Does no I/O. See
    /// [`LeaseRef::is_valid`].
    pub fn is_leader(&self) -> bool {
        self.lease.is_valid()
    }

    /// Returns the fencing token, which is higher than the token of each earlier leader.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Returns a view of the leadership's lease for other tasks.
    pub fn view(&self) -> LeaseRef {
        self.lease.view()
    }

    /// Ends the leadership, so that a waiting candidate can lead at once. Takes as long as
    /// [`Lease::release`].
    ///
    /// # Errors
    /// [`NoQuorum`](ReleaseError::NoQuorum): too few nodes replied to determine the outcome.
    ///
    /// # Cancel safety
    /// If the future is dropped, the resignation continues in the background.
    pub async fn resign(self) -> Result<ReleaseOutcome, ReleaseError> {
        self.lease.release().await
    }

    pub(super) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Returns the lease of the leadership, for example to resign with
    /// [`release_after`](Lease::release_after). The lease is renewed like the leadership.
    pub fn into_lease(self) -> Lease {
        self.lease
    }
}

impl Deref for Leadership {
    type Target = LeaseRef;

    fn deref(&self) -> &LeaseRef {
        &self.lease
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("lease", &self.lease)
            .field("token", &self.token)
            .finish()
    }
}
