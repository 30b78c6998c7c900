//! Events of extensions and releases.

use super::release::ReleaseOutcome;
use super::state::LeaseState;
use crate::error::ReleaseError;
use crate::observe::event::{Event, ExtendOutcome, ReleaseResult};
use crate::observe::{EventLevel, Report};
use crate::protocol::{Extended, Loss, Time, Ttl};

/// Emits [`Event::ExtendStarted`] when an extension starts, and [`Event::ExtendFinished`] when the
/// extension finishes or this value is dropped.
pub(super) struct ExtendEvents<'a> {
    lease: &'a LeaseState,
    started: Option<(u64, Time)>,
}

impl<'a> ExtendEvents<'a> {
    pub(super) fn start(lease: &'a LeaseState, ttl: Ttl) -> Self {
        let observers = lease.observers();
        let started =
            observers.wants(EventLevel::Debug).then(|| (observers.next_id(), lease.now()));
        if let Some((id, _)) = started {
            let (lock, ttl) = (lease.lock_info(), ttl.as_duration());
            observers.emit(EventLevel::Debug, || Event::ExtendStarted { lock, id, ttl });
        }
        Self { lease, started }
    }

    pub(super) fn finish(mut self, extended: Extended, report: &Report) {
        let outcome = match extended {
            Extended::Until(_) => ExtendOutcome::Extended,
            Extended::Unchanged(_) => ExtendOutcome::NoQuorum,
            Extended::Ended(_) => ExtendOutcome::Ended,
        };
        self.emit(outcome, Some(report.clone()));
    }

    fn emit(&mut self, outcome: ExtendOutcome, report: Option<Report>) {
        let Some((id, started)) = self.started.take() else { return };
        let lease = self.lease;
        lease.observers().emit(EventLevel::Debug, || {
            let now = lease.now();
            let (elapsed, validity) = (now.since(started), lease.validity(now));
            Event::ExtendFinished {
                lock: lease.lock_info(),
                id,
                outcome,
                elapsed,
                validity,
                report,
            }
        });
    }
}

impl Drop for ExtendEvents<'_> {
    fn drop(&mut self) {
        self.emit(ExtendOutcome::Dropped, None);
    }
}

/// Emits [`Event::ReleaseStarted`] when a release starts, and [`Event::ReleaseFinished`] when the
/// release finishes or this value is dropped.
pub(super) struct ReleaseEvents<'a> {
    lease: &'a LeaseState,
    started: Option<Time>,
}

impl<'a> ReleaseEvents<'a> {
    pub(super) fn start(lease: &'a LeaseState, loss: Option<Loss>) -> Self {
        let started = lease.observers().wants(EventLevel::Warn).then(|| lease.now());
        if let Some(now) = started {
            let (lock, held_for) = (lease.lock_info(), now.since(lease.since()));
            let event = || Event::ReleaseStarted { lock, held_for, loss };
            lease.observers().emit(EventLevel::Debug, event);
        }
        Self { lease, started }
    }

    pub(super) fn finish(mut self, ended: &Result<ReleaseOutcome, ReleaseError>) {
        let result = match ended {
            Ok(ReleaseOutcome::Expired) => ReleaseResult::Expired,
            Ok(ReleaseOutcome::TakenOver) => ReleaseResult::TakenOver,
            Ok(_) => ReleaseResult::Released,
            Err(_) => ReleaseResult::NoQuorum,
        };
        self.emit(result, ended.as_ref().err().and_then(ReleaseError::report).cloned());
    }

    fn emit(&mut self, result: ReleaseResult, report: Option<Report>) {
        let Some(started) = self.started.take() else { return };
        let is_unconfirmed = result == ReleaseResult::NoQuorum;
        let level = if is_unconfirmed { EventLevel::Warn } else { EventLevel::Debug };
        self.lease.observers().emit(level, || Event::ReleaseFinished {
            lock: self.lease.lock_info(),
            result,
            elapsed: self.lease.now().since(started),
            report,
        });
    }
}

impl Drop for ReleaseEvents<'_> {
    fn drop(&mut self) {
        self.emit(ReleaseResult::InBackground, None);
    }
}
