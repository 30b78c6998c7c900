//! Events of a lease: its extensions, its loss and its release.

use super::extension::Extension;
use super::release::ReleaseOutcome;
use super::state::LeaseState;
use crate::error::ReleaseError;
use crate::observe::event::{Event, ExtendOutcome, LockInfo, ReleaseResult};
use crate::observe::{Observers, Tag, Weight};
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
    is_loss_emitted: AtomicBool,
}

impl Observed {
    pub(super) fn new(tag: Tag, since: Time) -> Self {
        let tag = (tag.id > 0 || tag.class.is_some()).then(|| Box::new(tag));
        Self { tag, since, failures: AtomicU32::new(0), is_loss_emitted: AtomicBool::new(false) }
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

    fn lock(&self) -> LockInfo {
        self.tag().lock(self.claim().keys(), self.origin.prefix)
    }

    fn observers(&self) -> &Observers {
        &self.origin.observers
    }

    /// Emits [`Event::LeaseLost`] once, if `tenure` is a loss.
    pub(super) fn emit_end(&self, tenure: Tenure) {
        let Tenure::Lost(reason) = tenure else { return };
        let weight = if reason == Loss::Closed { Weight::Detail } else { Weight::Trouble };
        if !self.observers().wants(weight)
            || self.observed.is_loss_emitted.swap(true, Ordering::AcqRel)
        {
            return;
        }
        self.observers().emit(weight, || Event::LeaseLost {
            lock: self.lock(),
            reason,
            held_for: self.now().since(self.since()),
        });
    }

    /// Remaining validity at `now`, if renewal events are observed.
    pub(super) fn slack(&self, now: Time) -> Option<Duration> {
        self.observers().wants(Weight::Trouble).then(|| self.validity(now))
    }

    /// Emits the outcome of a renewal. `slack` was the remaining validity when it was decided.
    pub(super) fn emit_renewal(
        &self,
        extended: Extended,
        slack: Option<Duration>,
        extension: &Extension,
    ) {
        let failures = &self.observed.failures;
        let (until, failures) = match extended {
            Extended::Until(until) => (Some(until), failures.swap(0, Ordering::Relaxed)),
            Extended::Unchanged(_) => (None, failures.fetch_add(1, Ordering::Relaxed) + 1),
            Extended::Ended(_) => return,
        };
        let Some(slack) = slack else { return };
        // Only the first of consecutive failures is reported as trouble.
        let is_first = until.is_none() && failures == 1;
        let weight = if is_first { Weight::Trouble } else { Weight::Detail };
        self.observers().emit(weight, || match until {
            Some(until) => Event::LeaseRenewed {
                lock: self.lock(),
                slack,
                validity: until.since(self.now()),
                failures,
            },
            None => Event::RenewalFailed {
                lock: self.lock(),
                failures,
                remaining: slack,
                held: self.held(),
                report: extension.tally.report(self.names()),
            },
        });
    }

    /// Number of resources that the client has leases of.
    fn held(&self) -> usize {
        let bond = lock(&self.bond);
        let backing = bond.as_ref().map(|bond| bond.backing.clone());
        drop(bond);
        backing.map_or(0, |backing| backing.registry.count())
    }
}

/// Emits [`Event::ExtendStarted`] for an extension that the holder requested, and [`Event::ExtendFinished`] at its end
/// or when it is dropped.
pub(super) struct ExtendWatch<'a> {
    state: &'a LeaseState,
    /// The extension's number and start. `None` if not observed, or after the last event.
    started: Option<(u64, Time)>,
}

impl<'a> ExtendWatch<'a> {
    pub(super) fn start(state: &'a Arc<LeaseState>, ttl: Ttl) -> Self {
        let observers = state.observers();
        let started = observers.wants(Weight::Detail).then(|| (observers.next_id(), state.now()));
        if let Some((id, _)) = started {
            let event = || Event::ExtendStarted { lock: state.lock(), id, ttl: ttl.as_duration() };
            observers.emit(Weight::Detail, event);
        }
        Self { state, started }
    }

    pub(super) fn finish(mut self, extended: Extended, tally: &Tally) {
        let outcome = match extended {
            Extended::Until(_) => ExtendOutcome::Extended,
            Extended::Unchanged(_) => ExtendOutcome::NoQuorum,
            Extended::Ended(_) => ExtendOutcome::Ended,
        };
        self.emit(outcome, Some(tally));
    }

    fn emit(&mut self, outcome: ExtendOutcome, tally: Option<&Tally>) {
        let Some((id, started)) = self.started.take() else { return };
        let state = self.state;
        state.observers().emit(Weight::Detail, || {
            let now = state.now();
            Event::ExtendFinished {
                lock: state.lock(),
                id,
                outcome,
                elapsed: now.since(started),
                validity: state.validity(now),
                report: tally.map(|tally| tally.report(state.names())),
            }
        });
    }
}

impl Drop for ExtendWatch<'_> {
    fn drop(&mut self) {
        self.emit(ExtendOutcome::Dropped, None);
    }
}

/// Emits [`Event::ReleaseStarted`] for the release of the last guard, and [`Event::ReleaseFinished`] at its end or when
/// it is dropped.
pub(super) struct ReleaseWatch<'a> {
    state: &'a LeaseState,
    /// The start of the release. `None` if not observed, or after the last event.
    started: Option<Time>,
}

impl<'a> ReleaseWatch<'a> {
    pub(super) fn start(state: &'a Arc<LeaseState>) -> Self {
        let observers = state.observers();
        let started = observers.wants(Weight::Trouble).then(|| state.now());
        if let Some(now) = started {
            observers.emit(Weight::Detail, || Event::ReleaseStarted {
                lock: state.lock(),
                held_for: now.since(state.since()),
                loss: match state.tenure() {
                    Tenure::Lost(loss) => Some(loss),
                    Tenure::Held { .. } | Tenure::Released => None,
                },
            });
        }
        Self { state, started }
    }

    pub(super) fn finish(mut self, ended: &Result<ReleaseOutcome, ReleaseError>) {
        let result = match ended {
            Ok(ReleaseOutcome::Expired) => ReleaseResult::Expired,
            Ok(ReleaseOutcome::TakenOver) => ReleaseResult::TakenOver,
            Ok(_) => ReleaseResult::Released,
            Err(_) => ReleaseResult::NoQuorum,
        };
        self.emit(result, ended.as_ref().err());
    }

    fn emit(&mut self, result: ReleaseResult, error: Option<&ReleaseError>) {
        let Some(started) = self.started.take() else { return };
        // Reported as trouble, because the holder may never see the error: `using` returns the output of its work.
        let is_unconfirmed = result == ReleaseResult::NoQuorum;
        let weight = if is_unconfirmed { Weight::Trouble } else { Weight::Detail };
        self.state.observers().emit(weight, || Event::ReleaseFinished {
            lock: self.state.lock(),
            result,
            elapsed: self.state.now().since(started),
            report: error.and_then(ReleaseError::report).cloned(),
        });
    }
}

impl Drop for ReleaseWatch<'_> {
    fn drop(&mut self) {
        self.emit(ReleaseResult::InBackground, None);
    }
}
