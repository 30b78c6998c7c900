//! Creation, end and release of leases.

use super::acquire::{Attempt, Terms};
use super::claim::Claim;
use super::completion::{Completion, Replies};
use super::lease::Lease;
use super::local_release::LocalRelease;
use super::shared_lease::SharedLease;
use super::slots::{AcquireId, LeaseId, RoundId};
use super::state::Coordinator;
use super::timeout::Timeout;
use super::votes::{Owner, VoteCounter};
use crate::observe::event::Event;
use crate::observe::{EventLevel, Report};
use crate::protocol::{
    CheckKind, Goal, LeaseStatus, Loss, NodeId, Renewal, Round, SuspectedLoss, Time, Ttl,
};
use crate::wire::{Command, CoolDown, Key, Value};
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

impl Coordinator {
    /// Creates the lease of a successful attempt. An older lease of this client on one of the keys is lost.
    pub(super) fn insert_lease(
        &mut self,
        acquire: AcquireId,
        terms: &Terms,
        attempt: &Attempt,
        valid_until: Time,
        now: Time,
    ) -> LeaseId {
        let settings = &self.cx.settings;
        let (quorum, drift) = (settings.quorum, settings.drift);
        let mut renewal = Renewal::new(quorum, drift, valid_until);
        if let Some(most) = terms.max_hold {
            renewal = renewal.auto_extended(terms.ttl, attempt.t1, most);
        }
        let valid_until = renewal.valid_until(now).unwrap_or(valid_until);
        let expiry = renewal.loss_at(valid_until);
        let needed = terms.max_hold.map_or(Duration::ZERO, |_| renewal.loss_margin());
        let shared = SharedLease::new(attempt.claim.clone(), valid_until, expiry, needed);
        let mut lease = Lease::new(shared, renewal, terms, attempt, SuspectedLoss::new(quorum));
        lease.acquire_id = Some(acquire);
        if !terms.at_least.is_zero() {
            let (value, until) =
                (Value::cool_down(&self.cx.random), attempt.t1.after(terms.at_least));
            lease.cooling = Some(Arc::new(CoolDown { value, until }));
        }
        let id = self.leases.insert(lease);
        if let Some(votes) = self.rounds.get_mut(attempt.round) {
            votes.owner = Owner::Lease(id);
        }
        // Readers do not exclude each other.
        for key in terms.keys.iter().filter(|_| !terms.is_reader()) {
            if let Some(older) = self.leases_by_key.insert(key.clone(), id) {
                self.take_over(older, now);
            }
            self.report_change(Some(key));
        }
        id
    }

    /// Starts the renewal of an auto-extended lease that the caller has taken. Has no effect on other leases.
    pub(crate) fn handle_taken(&mut self, id: LeaseId, now: Time) {
        if self.leases.get(id).is_some_and(|lease| lease.renewal.is_auto_extended()) {
            self.watch(id, now);
        }
        self.settle(now);
    }

    /// Makes the coordinator report the lease's end as [`Completion::LeaseEnded`], because a caller waits for it. If the
    /// acquire did not subscribe to changes of the keys, a check does. Readers do not subscribe, because each of them
    /// changes the key.
    pub(crate) fn handle_watch(&mut self, id: LeaseId, now: Time) {
        self.watch(id, now);
        let must_subscribe = |lease: &Lease| !lease.is_subscribed && !lease.claim().is_reader();
        if self.leases.get(id).is_some_and(must_subscribe) {
            self.request_check(id, CheckKind::Check, now);
        }
        self.settle(now);
    }

    pub(super) fn watch(&mut self, id: LeaseId, now: Time) {
        if let Some(lease) = self.leases.get_mut(id) {
            lease.is_watched = true;
            self.step_lease(id, now);
        }
    }

    pub(super) fn take_over(&mut self, id: LeaseId, now: Time) {
        self.lose(id, Loss::TakenOver, now);
    }

    fn lose(&mut self, id: LeaseId, loss: Loss, now: Time) {
        if let Some(lease) = self.leases.get_mut(id) {
            let status = lease.renewal.lose(loss, now);
            self.handle_end(id, status, now);
        }
    }

    /// Handles the end of a lease before its release. The first call reports the end as [`Completion::LeaseEnded`].
    pub(super) fn handle_end(&mut self, id: LeaseId, status: LeaseStatus, now: Time) {
        let prefix = self.cx.settings.prefix;
        let Some(lease) = self.leases.get_mut(id) else { return };
        // The withdrawn claim writes no further command except its release.
        lease.claim().withdraw();
        lease.shared.publish(status);
        if std::mem::replace(&mut lease.is_end_reported, true)
            || lease.shared.status(now) == LeaseStatus::Released
        {
            // The end was already reported, or the holder ended the lease before the loss and will release it.
            return;
        }
        let (lock, held_for) = (lease.lock_info(prefix), now.since(lease.since));
        // If the lease has not been taken yet, its acquire tries again.
        self.ready.extend(lease.acquire_id.filter(|_| !lease.shared.is_taken()));
        self.completions.push_back(Completion::LeaseEnded { lease: id });
        if let LeaseStatus::Lost(reason) = status {
            let level = if reason == Loss::Closed { EventLevel::Debug } else { EventLevel::Warn };
            self.cx.emit(level, |_| Event::LeaseLost { lock, reason, held_for });
        }
    }

    /// Starts the release of the lease, which completes with [`Completion::Released`]. If `cool_down` is set, the
    /// resource stays locked for that time. The caller must call [`SharedLease::end`] first. Returns `None` if the
    /// lease was already released.
    pub(crate) fn handle_release(
        &mut self,
        id: LeaseId,
        cool_down: Option<Ttl>,
        now: Time,
    ) -> Option<RoundId> {
        let lease = self.leases.get_mut(id)?;
        if let Some(cool_down) = cool_down {
            let until = now.after(cool_down.as_duration());
            if lease.cooling.as_ref().is_none_or(|known| known.until < until) {
                let value = Value::cool_down(&self.cx.random);
                lease.cooling = Some(Arc::new(CoolDown { value, until }));
            }
        }
        let call = self.begin_release(now);
        self.end_lease(id, Some(call), now);
        self.settle(now);
        Some(call)
    }

    /// Starts the release of keys that another coordinator has acquired. The release completes with
    /// [`Completion::Released`].
    pub(crate) fn handle_release_claim(&mut self, claim: &Arc<Claim>, now: Time) -> RoundId {
        let call = self.begin_release(now);
        let all = self.cx.settings.quorum.ids().collect();
        self.release_other_keys(claim, all, now);
        self.release_claim(claim, None, Some(call), now);
        self.settle(now);
        if self.is_closed() {
            // No connection is left to deliver the release, and no alarm to end its round.
            self.close_round(call, now);
        }
        call
    }

    fn begin_release(&mut self, now: Time) -> RoundId {
        let close_at = now.after(self.cx.settings.node_timeout);
        let round = Round::new(self.cx.settings.quorum, Goal::Release);
        let call = self.rounds.insert(VoteCounter::new(Owner::Release, round, now, close_at));
        self.set_timeout(close_at, Timeout::Round(call));
        call
    }

    pub(crate) fn handle_drop(&mut self, id: LeaseId, now: Time) {
        self.end_lease(id, None, now);
        self.settle(now);
    }

    /// Releases a lease that the caller has never taken. The lock becomes free immediately, without cool-down or
    /// minimum hold time.
    pub(super) fn drop_lease(&mut self, id: LeaseId, now: Time) {
        if let Some(lease) = self.leases.get_mut(id) {
            (lease.cooling, lease.acquire_id) = (None, None);
            lease.is_end_reported = true;
            self.end_lease(id, None, now);
        }
    }

    fn end_lease(&mut self, id: LeaseId, round: Option<RoundId>, now: Time) {
        let Some(lease) = self.leases.get_mut(id) else { return };
        let status = lease.renewal.release(now);
        match status {
            LeaseStatus::Lost(_) => self.handle_end(id, status, now),
            LeaseStatus::Held { .. } | LeaseStatus::Released => {
                lease.shared.publish(LeaseStatus::Released);
            }
        }
        let Some(lease) = self.leases.remove(id) else { return };
        if let Some(acquire) = lease.acquire_id {
            self.acquires.remove(acquire);
        }
        self.forget_keys(id, lease.claim());
        self.release_unchosen(lease.claim(), lease.acquire_round, true, now);
        self.end_reservation(lease.claim(), lease.acquire_round, now);
        self.forget_round(Some(lease.acquire_round));
        lease.extensions.iter().for_each(|call| self.end_extension(*call, status));
        let cooling = lease.cooling.clone().filter(|cooling| now < cooling.until);
        let free_at = cooling.as_ref().map_or(now, |cooling| cooling.until);
        self.release_claim(lease.claim(), cooling, round, now);
        self.handle_local_release(lease.claim(), lease.any_of.as_ref(), free_at, now);
        lease.claim().keys().iter().for_each(|key| self.report_change(Some(key)));
    }

    /// Ends the association of the claim's keys with the lease.
    pub(super) fn forget_keys(&mut self, id: LeaseId, claim: &Claim) {
        for key in claim.keys().iter() {
            if let Entry::Occupied(entry) = self.leases_by_key.entry(key.clone())
                && *entry.get() == id
            {
                entry.remove();
            }
        }
    }

    /// Submits the release to all nodes, so that it reaches each node that may hold a key (I5).
    pub(super) fn release_claim(
        &mut self,
        claim: &Arc<Claim>,
        cooling: Option<Arc<CoolDown>>,
        round: Option<RoundId>,
        now: Time,
    ) {
        claim.withdraw();
        let all = self.cx.settings.quorum.ids().collect();
        let release =
            if claim.is_any() { Command::ReleaseAny } else { Command::Release { cooling } };
        self.submit(all, claim, release, round, now);
    }

    /// Notifies this client's waiting acquires that the released keys are free from `free_at` on. `any_of` is the queue
    /// of the acquires that need any one of several keys, one of which the lease has held. The releases must be
    /// submitted before this call, so that the nodes execute them before later commands (I8).
    pub(super) fn handle_local_release(
        &mut self,
        claim: &Arc<Claim>,
        any_of: Option<&Key>,
        free_at: Time,
        now: Time,
    ) {
        let (mut ready, release) = (Vec::new(), LocalRelease::new(claim, any_of, free_at));
        // For a claim to any one of several keys, each node's reply names the key that it deleted. A reader's release
        // deletes the key only if no other reader is left.
        for key in claim.keys().iter().filter(|_| !claim.is_any() && !claim.is_reader()) {
            self.queues.handle_release(key, &release, &self.rounds, now, &mut ready);
        }
        self.ready.extend(ready);
    }

    pub(super) fn complete_release(&mut self, call: RoundId) {
        let Some(votes) = self.rounds.get(call) else { return };
        let Some(outcome) = votes.round().outcome() else { return };
        if let Some(replies) = self.take_replies(call) {
            self.completions.push_back(Completion::Released { call, outcome, replies });
        }
    }

    /// Starts to release all leases that callers have taken. Returns the first key of each lease with the ID of the
    /// release, which completes with [`Completion::Released`].
    pub(crate) fn handle_release_all(&mut self, now: Time) -> Vec<(Key, RoundId)> {
        let leases: Vec<_> = self.leases.ids();
        let released = leases.into_iter().filter_map(|id| {
            // A lease that was not taken yet belongs to an unfinished acquire.
            let lease = self.leases.get(id).filter(|lease| lease.shared.is_taken())?;
            let key = lease.claim().keys().first().clone();
            self.lose(id, Loss::Closed, now);
            Some((key, self.handle_release(id, None, now)?))
        });
        released.collect()
    }

    pub(super) fn close_leases(&mut self, now: Time) {
        for id in self.leases.ids() {
            self.lose(id, Loss::Closed, now);
            self.end_lease(id, None, now);
        }
    }

    pub(super) fn find_lease(&self, key: &[u8], value: &Value) -> Option<LeaseId> {
        let id = *self.leases_by_key.get(key)?;
        self.leases.get(id).filter(|lease| lease.shared.claim().value() == value).map(|_| id)
    }

    /// Returns a report of the nodes' replies to the acquire of this lease, including replies that arrived after the
    /// quorum. Returns `None` if the lease was released or the replies were taken.
    pub(crate) fn lease_report(&self, id: LeaseId, now: Time) -> Option<Report> {
        let votes = self.rounds.get(self.leases.get(id)?.acquire_round)?;
        Some(votes.report(self.cx.names(), now))
    }

    /// Removes and returns the nodes' replies to the acquire of this lease. Returns `None` if the lease was released or
    /// the replies were already taken. For a lease of one of several keys, the release still needs the replies, so this
    /// method returns a copy.
    pub(crate) fn take_lease_replies(&mut self, id: LeaseId) -> Option<Box<Replies>> {
        let lease = self.leases.get(id)?;
        let round = lease.acquire_round;
        if lease.any_of.is_none() {
            return self.take_replies(round);
        }
        let votes = self.rounds.get(round)?.clone();
        Some(Box::new(Replies::new(votes, self.cx.names().clone())))
    }

    fn take_replies(&mut self, round: RoundId) -> Option<Box<Replies>> {
        let votes = self.rounds.remove(round)?;
        Some(Box::new(Replies::new(votes, self.cx.names().clone())))
    }

    /// Records that a key of the lease has changed on `node`. Returns the number of nodes that may have lost keys of
    /// the lease, or `None` if the lease was released.
    pub(super) fn suspected_nodes(&mut self, id: LeaseId, node: NodeId) -> Option<usize> {
        let lease = self.leases.get_mut(id)?;
        let acquired = lease.latest_votes.and_then(|round| self.rounds.get(round));
        let granted = acquired.map(|votes| votes.round().granted()).unwrap_or_default();
        Some(lease.suspected.handle_invalidation(node, granted))
    }
}
