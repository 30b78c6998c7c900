//! The coordinator's state of one lease.

use super::acquire::{Attempt, Terms};
use super::claim::Claim;
use super::shared_lease::SharedLease;
use super::slots::{AcquireId, RoundId};
use super::votes::{Cause, Owner, VoteCounter};
use crate::observe::AcquireTag;
use crate::observe::event::LockInfo;
use crate::protocol::{Checks, Drift, Extended, Goal, NodeId, Renewal, SuspectedLoss, Time, Ttl};
use crate::wire::{CoolDown, Key};
use std::sync::Arc;
use std::time::Duration;

pub(super) struct Lease {
    pub(super) shared: Arc<SharedLease>,
    pub(super) renewal: Renewal,
    /// The start (T1) and the TTL of the acquire or extension that determines the current validity.
    pub(super) basis: (Time, Ttl),
    pub(super) tag: AcquireTag,
    /// If the acquire needed one of several keys: the queue in which it waited.
    pub(super) any_of: Option<Key>,
    /// When the attempt that acquired the lease started (T1).
    pub(super) since: Time,
    /// Whether the coordinator must notice the lease's end, because it renews the lease or because a caller waits for
    /// the end.
    pub(super) is_watched: bool,
    /// Whether the client has subscribed to changes of the keys.
    pub(super) is_subscribed: bool,
    /// The acquire that created the lease. Removed together with the lease.
    pub(super) acquire_id: Option<AcquireId>,
    pub(super) acquire_round: RoundId,
    /// Nodes that may have lost the keys since the last acquire, extension or check.
    pub(super) suspected: SuspectedLoss,
    /// The round that acquired the lease. Nodes that grant late in this round also hold the keys. `None` after the
    /// first extension or check, whose votes are more recent.
    pub(super) latest_votes: Option<RoundId>,
    pub(super) checks: Checks,
    pub(super) extensions: Vec<RoundId>,
    pub(super) failures: u32,
    /// A cool-down, which keeps the resource locked after the release: the release replaces the lease's value with the
    /// value of the cool-down.
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
            any_of: terms.any_of.clone(),
            since: attempt.t1,
            is_watched: false,
            is_subscribed: terms.subscribes(),
            acquire_id: None,
            acquire_round: attempt.round,
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

    /// Returns true if the keys may expire before the lease's validity ends, because node clocks have stepped forward.
    /// `since` returns an upper bound on the clock steps since a given time.
    pub(super) fn may_end_early(&self, drift: Drift, since: impl FnOnce(Time) -> Duration) -> bool {
        let (t1, ttl) = self.basis;
        since(t1) > drift.allowance(ttl)
    }
}
