//! A held lock, and all who hold it.
//!
//! Here live the lease, its views, its renewal, its release, and the register of a client's leases. What
//! was won comes from [`acquire`](crate::acquire); how long it is valid is for
//! [`protocol`](crate::protocol) to say.

mod backing;
mod doubts;
mod ending;
mod extension;
mod kept;
mod limits;
mod observed;
mod registry;
mod release;
mod state;
mod takeover;
mod view;

pub(crate) use backing::Backing;
pub use ending::Ended;
pub(crate) use limits::{Limits, to_ttl};
pub(crate) use registry::LeaseRegistry;
pub use release::ReleaseOutcome;
pub(crate) use state::LeaseState;
pub use view::LeaseRef;

use self::observed::ReleaseWatch;
use self::release::release;
use crate::acquire::{Acquired, AttemptGuard};
use crate::error::ReleaseError;
use crate::protocol::{Renewal, Ttl};
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
///
/// A lease belongs to the process that acquired it. A process that is forked while it is held has a copy: dropping that
/// releases nothing, nor does closing the client there, and [`release`](Self::release) does.
#[must_use = "a lease is released when it is dropped"]
pub struct Lease {
    lease: LeaseRef,
    /// True while this guard counts.
    is_guard: bool,
}

impl Lease {
    /// The lease that was acquired, acquired with `ttl`, and kept up for `max_hold` if that is given; `None`
    /// if the client was closed meanwhile.
    pub(crate) fn new(
        backing: &Arc<Backing>,
        acquired: Acquired,
        ttl: Ttl,
        (max_hold, at_least): (Option<Duration>, Duration),
    ) -> Option<Self> {
        // The permit is kept until the lease is in the registry.
        let Acquired { guard, valid_until, tally, tag } = acquired;
        let AttemptGuard { previous, mut release, permit: _permit, .. } = guard;
        if let Some(previous) = previous {
            previous.disarm();
        }
        if !at_least.is_zero() {
            release.keep_until(tally.t1().after(at_least));
        }
        let mut renewal = Renewal::new(backing.quorum, backing.limits.drift, valid_until);
        if let Some(most) = max_hold {
            renewal = renewal.auto_extended(ttl, tally.t1(), most);
        }
        let state = LeaseState::new(backing.clone(), release, (ttl, renewal), tally.clone(), tag);
        if !backing.registry.enter(&state) {
            // Nobody has worked under it.
            state.release().iter_mut().for_each(|bond| bond.guard.keep_no_longer());
            return None;
        }
        if max_hold.is_some() {
            state.watch();
        }
        Some(Self::guard(LeaseRef::new(state, tally)))
    }

    /// A guard that was counted already.
    pub(crate) fn guard(lease: LeaseRef) -> Self {
        Self { lease, is_guard: true }
    }

    /// The same lease, whose work is told to stop when so much is left.
    pub(crate) fn stopping_at(mut self, margin: Option<Duration>) -> Self {
        self.lease.margin = margin.unwrap_or_default();
        self
    }

    /// A view of the lease for other tasks, which does not keep it.
    pub fn view(&self) -> LeaseRef {
        self.lease.clone()
    }

    /// Ends the lease on all nodes, and tells whether it was held to the end. Expiry is an outcome,
    /// not an error; there is one round, without retries.
    ///
    /// Takes at most one node timeout, and one more where the runtime that was to deliver it is shut down
    /// meanwhile. Returns as soon as a quorum has deleted it. Nodes that do not answer are told again when
    /// they do.
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
    /// [`Invalid`](ReleaseError::Invalid) if the time is longer than
    /// [`max_ttl`](crate::Builder::max_ttl): the lock then stands for the `max_ttl`, so that nobody has
    /// it at once. [`NoQuorum`](ReleaseError::NoQuorum) if too few nodes answered to know.
    ///
    /// # Cancel safety
    /// If the future is dropped, the release goes on in the background.
    pub async fn release_after(self, cool_down: Duration) -> Result<ReleaseOutcome, ReleaseError> {
        // If it was given up before, there is nothing to cool down.
        let (ttl, checked) = match self.lease.state().access() {
            Some((backing, _)) => backing.limits.check_cool_down(cool_down),
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
            0 => match state.release() {
                Some(bond) => {
                    let watch = ReleaseWatch::begin(state);
                    let ended = release(bond, cool_down).await;
                    watch.end(&ended);
                    ended
                }
                None => Ok(ReleaseOutcome::AlreadyReleased),
            },
            guards => Ok(ReleaseOutcome::StillHeld { guards }),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let state = self.lease.state();
        if self.is_guard
            && state.leave() == 0
            && let Some(bond) = state.release()
        {
            // Told when the releases are in the mailboxes.
            let _watch = ReleaseWatch::begin(state);
            drop(bond);
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
