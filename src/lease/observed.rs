//! Events of a lease: its extensions, its loss and its release.

use super::extension::Extension;
use super::release::ReleaseOutcome;
use super::state::LeaseState;
use crate::error::ReleaseError;
use crate::observe::{
    ExtendBegun, ExtendEnded, ExtendOutcome, LeaseLost, Lock, Observers, ReleaseBegun,
    ReleaseEnded, ReleaseResult, RenewalFailing, Renewed, Tag, Weight,
};
use crate::protocol::{Extended, Loss, Tenure, Time, Ttl};
use crate::round::Tally;
use crate::sync::lock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// State of a lease's events.
pub(super) struct Observed {
    /// `None` if the lease has neither a number nor a class.
    tag: Option<Box<Tag>>,
    /// T1 of the round that acquired it.
    since: Time,
    /// Number of consecutive failed renewals.
    failures: AtomicU32,
    is_loss_told: AtomicBool,
}

impl Observed {
    pub(super) fn new(tag: Tag, since: Time) -> Self {
        let tag = (tag.id > 0 || tag.class.is_some()).then(|| Box::new(tag));
        Self { tag, since, failures: AtomicU32::new(0), is_loss_told: AtomicBool::new(false) }
    }
}

impl LeaseState {
    /// The number and the class of the lease in events.
    pub(crate) fn tag(&self) -> Tag {
        self.observed.tag.as_deref().copied().unwrap_or_default()
    }

    /// The time since which the lease is held: T1 of the round that acquired it.
    pub(crate) fn since(&self) -> Time {
        self.observed.since
    }

    fn lock(&self) -> Lock<'_> {
        self.tag().lock(self.claim().keys(), self.origin.prefix)
    }

    fn observers(&self) -> &Observers {
        &self.origin.observers
    }

    /// Emits [`LeaseLost`] once, if `tenure` is a loss.
    pub(super) fn tell_end(&self, tenure: Tenure) {
        let Tenure::Lost(reason) = tenure else { return };
        let weight = if reason == Loss::Closed { Weight::Detail } else { Weight::Trouble };
        if !self.observers().wants(weight)
            || self.observed.is_loss_told.swap(true, Ordering::AcqRel)
        {
            return;
        }
        let held_for = self.now().since(self.since());
        self.observers().tell(weight, &LeaseLost { lock: self.lock(), reason, held_for });
    }

    /// Remaining validity at `now`, if renewal events are observed.
    pub(super) fn slack(&self, now: Time) -> Option<Duration> {
        self.observers().wants(Weight::Trouble).then(|| self.validity(now))
    }

    /// Emits the outcome of a renewal. `slack` was the remaining validity when it was decided.
    pub(super) fn tell_upkeep(
        &self,
        extended: Extended,
        slack: Option<Duration>,
        extension: &Extension,
    ) {
        let failures = match extended {
            Extended::Until(_) => self.observed.failures.swap(0, Ordering::Relaxed),
            Extended::Unchanged(_) => self.observed.failures.fetch_add(1, Ordering::Relaxed) + 1,
            Extended::Ended(_) => return,
        };
        // Only the first of consecutive failures is reported as trouble.
        let is_first = matches!(extended, Extended::Unchanged(_)) && failures == 1;
        let weight = if is_first { Weight::Trouble } else { Weight::Detail };
        let Some(slack) = slack.filter(|_| self.observers().wants(weight)) else { return };
        let (observers, lock) = (self.observers(), self.lock());
        if let Extended::Until(until) = extended {
            let validity = until.since(self.now());
            return observers.tell(weight, &Renewed { lock, slack, validity, failures });
        }
        let (left, held) = (slack, self.held());
        let report = extension.tally.report(self.names());
        let report = &report;
        observers.tell(weight, &RenewalFailing { lock, failures, left, held, report });
    }

    /// Number of resources that the client has leases of.
    fn held(&self) -> usize {
        let bond = lock(&self.bond);
        let backing = bond.as_ref().map(|bond| bond.backing.clone());
        drop(bond);
        backing.map_or(0, |backing| backing.registry.count())
    }
}

/// Emits [`ExtendBegun`] for an extension that the holder requested, and [`ExtendEnded`] at its end
/// or when it is dropped.
pub(super) struct ExtendWatch<'a> {
    state: &'a LeaseState,
    /// The extension's number and start. `None` if not observed, or after the last event.
    begun: Option<(u64, Time)>,
}

impl<'a> ExtendWatch<'a> {
    pub(super) fn begin(state: &'a Arc<LeaseState>, ttl: Ttl) -> Self {
        let observers = state.observers();
        let begun = observers.wants(Weight::Detail).then(|| (observers.next_id(), state.now()));
        if let Some((id, _)) = begun {
            let event = ExtendBegun { lock: state.lock(), id, ttl: ttl.as_duration() };
            observers.tell(Weight::Detail, &event);
        }
        Self { state, begun }
    }

    pub(super) fn end(mut self, extended: Extended, tally: &Tally) {
        let outcome = match extended {
            Extended::Until(_) => ExtendOutcome::Extended,
            Extended::Unchanged(_) => ExtendOutcome::NoQuorum,
            Extended::Ended(_) => ExtendOutcome::Ended,
        };
        self.tell(outcome, Some(tally));
    }

    fn tell(&mut self, outcome: ExtendOutcome, tally: Option<&Tally>) {
        let Some((id, begun)) = self.begun.take() else { return };
        let (state, now) = (self.state, self.state.now());
        let report = tally.map(|tally| tally.report(state.names()));
        let event = ExtendEnded {
            lock: state.lock(),
            id,
            outcome,
            validity: state.validity(now),
            took: now.since(begun),
            report: report.as_ref(),
        };
        state.observers().tell(Weight::Detail, &event);
    }
}

impl Drop for ExtendWatch<'_> {
    fn drop(&mut self) {
        self.tell(ExtendOutcome::Dropped, None);
    }
}

/// Emits [`ReleaseBegun`] for the release of the last guard, and [`ReleaseEnded`] at its end or
/// when it is dropped.
pub(super) struct ReleaseWatch<'a> {
    state: &'a LeaseState,
    /// The start of the release. `None` if not observed, or after the last event.
    begun: Option<Time>,
}

impl<'a> ReleaseWatch<'a> {
    pub(super) fn begin(state: &'a Arc<LeaseState>) -> Self {
        let observers = state.observers();
        let begun = observers.wants(Weight::Trouble).then(|| state.now());
        if let Some(now) = begun.filter(|_| observers.wants(Weight::Detail)) {
            let loss = match state.tenure() {
                Tenure::Lost(loss) => Some(loss),
                Tenure::Held { .. } | Tenure::Released => None,
            };
            let (lock, held_for) = (state.lock(), now.since(state.since()));
            observers.tell(Weight::Detail, &ReleaseBegun { lock, held_for, loss });
        }
        Self { state, begun }
    }

    pub(super) fn end(mut self, ended: &Result<ReleaseOutcome, ReleaseError>) {
        let result = match ended {
            Ok(ReleaseOutcome::Expired) => ReleaseResult::Expired,
            Ok(ReleaseOutcome::TakenOver) => ReleaseResult::TakenOver,
            Ok(_) => ReleaseResult::Released,
            Err(_) => ReleaseResult::NoQuorum,
        };
        self.tell(result, ended.as_ref().err());
    }

    fn tell(&mut self, result: ReleaseResult, error: Option<&ReleaseError>) {
        let observers = self.state.observers();
        // Reported as trouble, because the holder may never see the error: `using` returns the output of its work.
        let is_unconfirmed = result == ReleaseResult::NoQuorum;
        let weight = if is_unconfirmed { Weight::Trouble } else { Weight::Detail };
        let Some(begun) = self.begun.take().filter(|_| observers.wants(weight)) else { return };
        let event = ReleaseEnded {
            lock: self.state.lock(),
            result,
            took: self.state.now().since(begun),
            report: error.and_then(ReleaseError::report),
        };
        observers.tell(weight, &event);
    }
}

impl Drop for ReleaseWatch<'_> {
    fn drop(&mut self) {
        self.tell(ReleaseResult::InBackground, None);
    }
}
