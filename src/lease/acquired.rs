//! The lease of an acquired lock, and its end.

use super::Lease;
use super::backing::Backing;
use super::limits::Limits;
use super::observed::{ExtendWatch, ReleaseWatch};
use super::release::ReleaseOutcome;
use super::sending::release;
use super::state::LeaseState;
use super::view::LeaseRef;
use crate::acquire::{Acquired, AttemptGuard};
use crate::error::ReleaseError;
use crate::observe::Report;
use crate::protocol::{Extended, Renewal, Tenure, Ttl};
use crate::sync::lock;
use std::sync::Arc;
use std::time::Duration;

impl Lease {
    /// Creates a lease with one guard from an acquired lock. It is renewed for up to `max_hold`, if
    /// given. `None` if the client was closed during the acquire.
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
            // The caller never held this lock: do not apply `at_least`.
            state.release().iter_mut().for_each(|bond| bond.guard.keep_no_longer());
            return None;
        }
        if max_hold.is_some() {
            state.watch();
        }
        Some(Self::guard(LeaseRef::new(state)))
    }
}

impl LeaseState {
    /// The replies to its acquire, including those after the quorum.
    pub(super) fn report(&self) -> Report {
        self.won.report(self.names())
    }

    /// The limits of the client. `None` after the release.
    pub(super) fn limits(&self) -> Option<Limits> {
        lock(&self.bond).as_ref().map(|bond| bond.backing.limits)
    }

    /// False for a copy in a forked child process.
    pub(crate) fn is_ours(&self) -> bool {
        lock(&self.bond).as_ref().is_none_or(|bond| !bond.guard.nodes().is_inherited())
    }

    /// Extends the lease to `ttl`. Returns a report unless at least `least` remains. Fails if the lease has ended before.
    pub(super) async fn extend_to(
        self: &Arc<Self>,
        ttl: Ttl,
        least: Duration,
    ) -> Result<(Extended, Option<Report>), Tenure> {
        let Some((_backing, nodes)) = self.access() else { return Err(self.tenure()) };
        let extension = self.extend(ttl)?;
        let tally = &extension.tally;
        let watch = ExtendWatch::start(self, ttl);
        tally.decided(&nodes, extension.close_at).await;
        let extended = self.settle(&extension);
        watch.finish(extended, tally);
        let remaining = match extended {
            Extended::Until(until) => Some(until.since(self.now())),
            Extended::Unchanged(_) | Extended::Ended(_) => None,
        };
        let is_enough = remaining >= Some(least);
        Ok((extended, (!is_enough).then(|| tally.report(nodes.names().cloned()))))
    }

    /// Releases the lease, whose last guard has gone.
    pub(super) async fn end(
        self: &Arc<Self>,
        cool_down: Option<Ttl>,
    ) -> Result<ReleaseOutcome, ReleaseError> {
        let Some(bond) = self.release() else { return Ok(ReleaseOutcome::AlreadyReleased) };
        let watch = ReleaseWatch::start(self);
        let ended = release(bond, cool_down).await;
        watch.finish(&ended);
        ended
    }

    /// Like [`end`](Self::end), without waiting for the result.
    pub(super) fn end_in_background(self: &Arc<Self>) {
        if let Some(bond) = self.release() {
            // Dropped after `bond`: the event follows once the releases are in the mailboxes.
            let _watch = ReleaseWatch::start(self);
            drop(bond);
        }
    }
}
