//! Leases that were acquired but not yet taken by their callers. A lease that stays untaken for too long is revoked, so
//! that other acquires can continue.

use super::acquire::Stage;
use super::completion::AcquireFailure;
use super::slots::AcquireId;
use super::stages::Step;
use super::state::Coordinator;
use crate::observe::Report;
use crate::protocol::Time;
use std::sync::Arc;
use std::time::Duration;

/// How long a caller may leave an acquired lease untaken. A lease is taken when the caller's future returns it. Two
/// seconds are enough for a caller that polls the future in a `select!` with other, slow branches.
const UNTAKEN_LIMIT: Duration = Duration::from_secs(2);

impl Coordinator {
    /// Continues an acquire whose lease had ended or was revoked before the caller took it. If time and retries remain,
    /// the acquire joins the end of the queue and makes another attempt. Otherwise, it completes with
    /// [`Completion::AcquireFailed`](super::Completion::AcquireFailed).
    pub(crate) fn handle_untaken(&mut self, id: AcquireId, now: Time) {
        self.advance(id, now);
        self.retry_untaken(id, now);
        self.settle(now);
    }

    /// Revokes an acquired lease that the caller has not taken for [`UNTAKEN_LIMIT`], or that is about to end, so that it
    /// can no longer be taken.
    ///
    /// The next attempt starts only when the acquire's future is polled again. A future that is never polled therefore
    /// cannot keep the lock from other clients.
    pub(super) fn step_delivered(&mut self, id: AcquireId, now: Time) -> Step {
        let Some(acquire) = self.acquires.get(id) else { return Step::Over };
        let Stage::Delivered { lease, since } = acquire.stage else { return Step::Over };
        let waits = acquire.terms.deadline.is_some();
        let Some(shared) = self.leases.get(lease).map(|lease| lease.shared.clone()) else {
            self.acquires.remove(id);
            return Step::Over;
        };
        let until = shared.takeable_until(now).map(|until| until.min(since.after(UNTAKEN_LIMIT)));
        if let Some(until) = until.filter(|until| now < *until && !shared.is_taken()) {
            return Step::Wait(until);
        }
        if !shared.revoke() {
            self.acquires.remove(id);
            return Step::Over;
        }
        let unknown = || Report::new(self.cx.settings.quorum.needed(), Arc::new([]));
        let report = self.lease_report(lease, now).unwrap_or_else(unknown);
        self.drop_lease(lease, now);
        self.enter_stage(id, Stage::Revoked { report });
        if waits { Step::Continue } else { self.fail_untaken(id, now) }
    }

    fn retry_untaken(&mut self, id: AcquireId, now: Time) {
        let Some(acquire) = self.acquires.get(id) else { return };
        let Stage::Revoked { .. } = &acquire.stage else { return };
        let terms = acquire.terms.clone();
        let random = self.cx.random.number();
        let Some(acquire) = self.acquires.get_mut(id) else { return };
        if acquire.acquisition.handle_abandoned(now, random) {
            acquire.stage = Stage::Queued;
            if terms.is_reader() {
                self.queues.join_readers(id, &terms.keys);
            } else {
                self.queues.join(id, &terms.keys, terms.any_of.as_ref(), now);
            }
            self.advance(id, now);
        } else {
            self.fail_untaken(id, now);
        }
    }

    pub(super) fn fail_untaken(&mut self, id: AcquireId, now: Time) -> Step {
        let Some(acquire) = self.acquires.get(id) else { return Step::Over };
        let Stage::Revoked { report } = &acquire.stage else { return Step::Over };
        let report = report.clone();
        self.fail(id, AcquireFailure::NotTaken { report }, now)
    }
}
