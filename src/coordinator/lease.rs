//! State of a lease.

use super::acquire::{Attempt, Terms};
use super::claim::Claim;
use super::shared_lease::SharedLease;
use super::slots::{AcquireId, RoundId};
use super::votes::{Cause, Owner, VoteCounter};
use crate::observe::Tag;
use crate::observe::event::LockInfo;
use crate::protocol::{Checks, Drift, Extended, Goal, NodeId, Renewal, SuspectedLoss, Time, Ttl};
use crate::wire::CoolDown;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct Lease {
    pub(super) shared: Arc<SharedLease>,
    pub(super) renewal: Renewal,
    /// T1 and ttl of the request that the validity comes from.
    pub(super) basis: (Time, Ttl),
    pub(super) tag: Tag,
    /// T1 of the acquire.
    pub(super) since: Time,
    /// True if it is renewed until its maximum hold time.
    pub(super) is_renewed: bool,
    /// True if the lease is renewed, or if a caller waits for its end.
    pub(super) is_watched: bool,
    /// The acquire that it was delivered to, which ends with the lease.
    pub(super) acquire: Option<AcquireId>,
    /// The round that acquired it.
    pub(super) acquired: RoundId,
    /// Nodes that may have lost the keys since the last request.
    pub(super) suspected: SuspectedLoss,
    /// The round that acquired it, until the first extension: its late votes count as grants.
    pub(super) latest_votes: Option<RoundId>,
    pub(super) checks: Checks,
    /// Rounds of extensions whose votes can still arrive.
    pub(super) extensions: Vec<RoundId>,
    /// Number of consecutive failed renewals.
    pub(super) failures: u32,
    /// The value that stays in its place after the release.
    pub(super) cooling: Option<Arc<CoolDown>>,
    pub(super) timeout: Option<Time>,
    pub(super) is_end_reported: bool,
}

impl Lease {
    pub(super) fn new(
        shared: Arc<SharedLease>,
        renewal: Renewal,
        terms: &Terms,
        attempt: &Attempt,
        suspected: SuspectedLoss,
    ) -> Self {
        Self {
            shared,
            renewal,
            basis: (attempt.t1, terms.ttl),
            tag: terms.tag,
            since: attempt.t1,
            is_renewed: terms.max_hold.is_some(),
            is_watched: false,
            acquire: None,
            acquired: attempt.round,
            suspected,
            latest_votes: Some(attempt.round),
            checks: Checks::default(),
            extensions: Vec::new(),
            failures: 0,
            cooling: None,
            timeout: None,
            is_end_reported: false,
        }
    }

    pub(super) fn claim(&self) -> &Arc<Claim> {
        self.shared.claim()
    }

    pub(super) fn lock_info(&self, prefix: usize) -> LockInfo {
        self.tag.lock(self.claim().keys(), prefix)
    }

    /// Another request is sent to the nodes.
    pub(super) fn handle_request(&mut self) {
        self.suspected.handle_request();
        self.latest_votes = None;
    }

    /// An extension was decided with these votes.
    pub(super) fn handle_votes(&mut self, votes: &VoteCounter) {
        self.suspected.handle_outcome(votes.round().granted());
    }

    /// Applies the outcome of an extension.
    pub(super) fn extend(&mut self, votes: &VoteCounter, now: Time) -> Extended {
        let (round, t1) = (votes.round(), votes.t1());
        let is_renewal = matches!(votes.owner, Owner::Extension { cause: Cause::Renewal, .. });
        let extended = if is_renewal {
            self.renewal.handle_auto_extension(round, t1, now)
        } else {
            self.renewal.handle_outcome(round, now)
        };
        if let Owner::Extension { until, .. } = votes.owner
            && let (Goal::Extend { proposed, .. }, Extended::Until(end)) = (round.goal(), extended)
        {
            if proposed == end {
                self.basis = (t1, Ttl::covering(until.since(t1)));
            }
            self.shared.extend(end, self.renewal.loss_at(end));
        }
        extended
    }

    /// `node` has granted an extension after its decision.
    pub(super) fn handle_grant(&mut self, node: NodeId) {
        self.suspected.handle_grant(node);
    }

    /// True if keys may expire before the validity ends: node clocks have stepped by `since(T1)`.
    pub(super) fn may_end_early(&self, drift: Drift, since: impl FnOnce(Time) -> Duration) -> bool {
        let (t1, ttl) = self.basis;
        since(t1) > drift.allowance(ttl)
    }
}
