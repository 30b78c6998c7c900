//! A lock with an end.

use crate::driver::Win;
use crate::error::ReleaseError;
use crate::holding::Holding;
use crate::lease_ref::LeaseRef;
use crate::protocol::{Renewal, Ttl};
use crate::redlock::Inner;
use crate::release::{ReleaseOutcome, release};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// A held lock. It ends at [`valid_until`](LeaseRef::valid_until), unless it is extended; when it is
/// [released](Self::release); or when it is dropped. What can be asked of it stands at [`LeaseRef`].
///
/// Dropping a lease releases it in the background, never blocks and never panics, with or without
/// a runtime. The release needs the runtime that the lease was acquired on to go on running; in a
/// short-lived process use [`release`](Self::release) or [`Redlock::close`](crate::Redlock::close),
/// else the lock may stay until its ttl ends.
#[must_use = "a lease is released when it is dropped"]
pub struct Lease {
    lease: LeaseRef,
    /// True while this guard counts.
    is_guard: bool,
}

impl Lease {
    /// The lease that `win` is; `None` if the client was closed meanwhile.
    pub(crate) fn new(
        client: &Arc<Inner>,
        win: Win,
        upkeep: Option<(Ttl, Duration)>,
    ) -> Option<Self> {
        // The permit is kept until the lease is in the roster.
        let Win { hold, valid_until, tally, permit: _permit } = win;
        let driver = &client.driver;
        let mut renewal = Renewal::new(driver.quorum, driver.drift, valid_until);
        if let Some((ttl, most)) = upkeep {
            renewal = renewal.kept_up(ttl, tally.t1(), most);
        }
        let holding = Holding::new(client.clone(), hold, renewal);
        if !client.roster.enter(&holding) {
            drop(holding.release());
            return None;
        }
        if upkeep.is_some() {
            holding.watch();
        }
        Some(Self::guard(LeaseRef::new(holding, tally)))
    }

    /// A guard that was counted already.
    pub(crate) fn guard(lease: LeaseRef) -> Self {
        Self { lease, is_guard: true }
    }

    /// A view of the lease for other tasks, which does not keep it.
    pub fn view(&self) -> LeaseRef {
        self.lease.clone()
    }

    /// Ends the lease on all nodes, and tells whether it was held to the end. Expiry is an outcome,
    /// not an error; there is one round, without retries.
    ///
    /// Takes at most one node timeout, and returns as soon as a quorum has deleted it. Nodes that do
    /// not answer are told again when they do.
    ///
    /// # Errors
    /// [`NoQuorum`](ReleaseError::NoQuorum) if too few nodes answered to know.
    ///
    /// # Cancel safety
    /// If the future is dropped, the release goes on in the background, as when a lease is dropped.
    pub async fn release(self) -> Result<ReleaseOutcome, ReleaseError> {
        self.end(None).await
    }

    /// Ends the lease, but lets nobody have the lock for `cool_down` from now on: on each node a value
    /// that nobody owns stands in its place for that time. For work that must not be done too often.
    ///
    /// Otherwise as [`release`](Self::release); if other guards of the lease are left, nothing is
    /// done. Whole milliseconds count; less than one is a plain release.
    ///
    /// # Errors
    /// [`Invalid`](ReleaseError::Invalid) if the time cannot be told to Redis; the lease is then
    /// dropped. [`NoQuorum`](ReleaseError::NoQuorum) if too few nodes answered to know.
    ///
    /// # Cancel safety
    /// If the future is dropped, the release goes on in the background.
    pub async fn release_after(self, cool_down: Duration) -> Result<ReleaseOutcome, ReleaseError> {
        let ttl = match cool_down.as_millis() {
            0 => None,
            _ => Some(self.lease.holding().client().settings.check_cool_down(cool_down)?),
        };
        self.end(ttl).await
    }

    async fn end(mut self, cool_down: Option<Ttl>) -> Result<ReleaseOutcome, ReleaseError> {
        self.is_guard = false;
        let holding = self.lease.holding();
        match holding.leave() {
            0 => match holding.release() {
                Some(hold) => release(holding, hold, cool_down).await,
                None => Ok(ReleaseOutcome::AlreadyReleased),
            },
            guards => Ok(ReleaseOutcome::StillHeld { guards }),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let holding = self.lease.holding();
        if self.is_guard && holding.leave() == 0 {
            drop(holding.release());
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
