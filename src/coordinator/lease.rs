//! State of a lease in the coordinator.

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
    /// T1 and the TTL of the request that determines the current validity.
    pub(super) basis: (Time, Ttl),
    pub(super) tag: Tag,
    /// T1 of the attempt that acquired the lease.
    pub(super) since: Time,
    /// Whether the lease is renewed automatically until its maximum hold time.
    pub(super) is_renewed: bool,
    /// Whether the lease is being renewed, or a caller waits for its end.
    pub(super) is_watched: bool,
    /// The acquire that the lease was delivered to. The acquire ends with the lease.
    pub(super) acquire: Option<AcquireId>,
    pub(super) acquired: RoundId,
    /// The nodes that may have lost the keys since the last request.
    pub(super) suspected: SuspectedLoss,
    /// The round that acquired the lease, or `None` after the first extension. Late votes in this round count as
    /// grants.
    pub(super) latest_votes: Option<RoundId>,
    pub(super) checks: Checks,
    pub(super) extensions: Vec<RoundId>,
    pub(super) failures: u32,
    /// The value that replaces the lease's value at the release, to keep the resource locked.
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

    pub(super) fn handle_request(&mut self) {
        self.suspected.handle_request();
        self.latest_votes = None;
    }

    pub(super) fn handle_votes(&mut self, votes: &VoteCounter) {
        self.suspected.handle_outcome(votes.round().granted());
    }

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

    pub(super) fn handle_grant(&mut self, node: NodeId) {
        self.suspected.handle_grant(node);
    }

    /// Returns true if keys may expire before the validity ends. `since(T1)` bounds the steps of the node clocks since
    /// T1.
    pub(super) fn may_end_early(&self, drift: Drift, since: impl FnOnce(Time) -> Duration) -> bool {
        let (t1, ttl) = self.basis;
        since(t1) > drift.allowance(ttl)
    }
}
