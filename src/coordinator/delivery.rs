//! Leases that were acquired but not yet taken by their callers. A lease that stays untaken for too long is revoked, so
//! that other acquires of the client can continue.

use super::acquire::Stage;
use super::completion::AcquireFailure;
use super::queue::queue_names;
use super::slots::AcquireId;
use super::stages::Step;
use super::state::Coordinator;
use crate::observe::Report;
use crate::protocol::Time;
use crate::wire::{Key, Keys};
use std::sync::Arc;
use std::time::Duration;

/// How long a caller may leave an acquired lease untaken while other acquires of this client wait for one of its keys.
/// A lease is taken when the caller's future returns it. Two seconds are enough for a caller that polls the future in a
/// `select!` with other, slow branches.
const UNTAKEN_LIMIT: Duration = Duration::from_secs(2);

/// The maximum number of times that [`UNTAKEN_LIMIT`] is halved for a key. Each consecutive lease that is revoked
/// untaken halves the limit. Six halvings reduce it from 2 s to 31 ms.
const MAX_HALVINGS: u32 = 6;

/// After [`UNTAKEN_LIMIT`], the interval at which the coordinator checks whether another acquire waits for a key of the
/// lease.
const UNTAKEN_INTERVAL: Duration = Duration::from_millis(50);

impl Coordinator {
    /// Continues an acquire whose lease had ended or was revoked before the caller took it. If time and retries remain,
    /// the acquire joins the end of the queue and makes another attempt. Otherwise, it completes with
    /// [`Completion::AcquireFailed`](super::Completion::AcquireFailed).
    pub(crate) fn handle_untaken(&mut self, id: AcquireId, now: Time) {
        self.advance(id, now);
        self.retry_untaken(id, now);
        self.settle(now);
    }

    /// Revokes an acquired lease that the caller has not taken, in one of these cases:
    ///
    /// - The lease is about to end, so that it can no longer be taken.
    /// - The acquire has a deadline, and the caller has not taken the lease for [`UNTAKEN_LIMIT`] or a fraction of it.
    ///   The lease is then revoked at the deadline, or earlier if another acquire of this client waits for one of its
    ///   keys.
    ///
    /// The next attempt starts only when the acquire's future is polled again. A future that is never polled therefore
    /// cannot keep the lock from other clients.
    pub(super) fn step_delivered(&mut self, id: AcquireId, now: Time) -> Step {
        let Some(acquire) = self.acquires.get(id) else { return Step::Over };
        let Stage::Delivered { lease, since } = acquire.stage else { return Step::Over };
        let (waits, deadline) = (acquire.terms.deadline.is_some(), acquire.deadline());
        let state =
            self.leases.get(lease).map(|lease| (lease.shared.clone(), lease.any_of.clone()));
        let Some((shared, any_of)) = state else {
            self.acquires.remove(id);
            return Step::Over;
        };
        if shared.is_taken() {
            self.acquires.remove(id);
            return Step::Over;
        }
        if let Some(takeable_until) = shared.takeable_until(now) {
            let keys = shared.claim().keys();
            let may_revoke = since.after(self.untaken_limit(any_of.as_ref(), keys));
            let is_wanted = || keys.iter().chain(&any_of).any(|it| self.queues.is_wanted(it, id));
            if !waits {
                return Step::Wait(takeable_until);
            } else if now < may_revoke {
                return Step::Wait(may_revoke.min(takeable_until));
            } else if now < deadline && !is_wanted() {
                return Step::Wait(now.after(UNTAKEN_INTERVAL).min(deadline).min(takeable_until));
            }
        }
        if !shared.revoke() {
            self.acquires.remove(id);
            return Step::Over;
        }
        let unknown = || Report::new(self.cx.settings.quorum.needed(), Arc::new([]));
        let report = self.lease_report(lease, now).unwrap_or_else(unknown);
        self.record_untaken(any_of.as_ref(), shared.claim().keys());
        self.drop_lease(lease, now);
        self.enter_stage(id, Stage::Revoked { report });
        if waits { Step::Continue } else { self.fail_untaken(id, now) }
    }

    /// Returns how long a caller may leave a lease untaken that comes from the queues of `any_of` or `keys`. The limit
    /// shrinks with each consecutive revoked lease, because each caller that does not poll its acquire delays the
    /// callers behind it.
    fn untaken_limit(&self, any_of: Option<&Key>, keys: &Keys) -> Duration {
        let queues = queue_names(any_of, keys).filter_map(|name| self.queues.queues.get(name));
        let untaken = queues.map(|queue| queue.untaken).max().unwrap_or(0);
        UNTAKEN_LIMIT / 2_u32.pow(untaken.min(MAX_HALVINGS))
    }

    fn record_untaken(&mut self, any_of: Option<&Key>, keys: &Keys) {
        for name in queue_names(any_of, keys) {
            if let Some(queue) = self.queues.queues.get_mut(name) {
                queue.untaken += 1;
            }
        }
    }

    /// Resets [`untaken_limit`](Self::untaken_limit) to its maximum. Called when a caller has taken a lease, or was
    /// polled after its lease was revoked: such a caller is slow but still active.
    pub(super) fn restore_untaken_limit(&mut self, any_of: Option<&Key>, keys: &Keys) {
        for name in queue_names(any_of, keys) {
            if let Some(queue) = self.queues.queues.get_mut(name) {
                queue.untaken = 0;
            }
        }
    }

    fn retry_untaken(&mut self, id: AcquireId, now: Time) {
        let Some(acquire) = self.acquires.get(id) else { return };
        let Stage::Revoked { .. } = &acquire.stage else { return };
        let terms = acquire.terms.clone();
        self.restore_untaken_limit(terms.any_of.as_ref(), &terms.keys);
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
