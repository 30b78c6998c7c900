//! Lease extensions: requested by the holder, as a scheduled renewal, or as a check that the lease is still held.

use super::completion::{Completion, Replies};
use super::slots::{LeaseId, RoundId};
use super::state::{Coordinator, is_lease_current};
use super::timeout::Timeout;
use super::votes::{Cause, Owner, VoteCounter};
use crate::observe::EventLevel;
use crate::observe::event::Event;
use crate::protocol::{
    CheckKind, Extended, Goal, LeaseStatus, NodeId, NodeSet, Outcome, Step, Time, Ttl,
};
use crate::wire::Command;
use std::time::Duration;

impl Coordinator {
    /// Starts to extend the lease to `ttl`, counted from `now`. The result is reported as [`Completion::Extended`] with
    /// the returned ID. Returns an error if the lease has already ended.
    pub(crate) fn handle_extend(
        &mut self,
        id: LeaseId,
        ttl: Ttl,
        now: Time,
    ) -> Result<RoundId, LeaseStatus> {
        let call = self.begin_extension(id, Some(ttl), Cause::Requested, now);
        self.settle(now);
        call
    }

    /// Makes the lease of a writer the lease of a reader, without changing its validity. The result is reported as
    /// [`Completion::Extended`].
    pub(crate) fn handle_downgrade(
        &mut self,
        id: LeaseId,
        now: Time,
    ) -> Result<RoundId, LeaseStatus> {
        if let Some(lease) = self.leases.get(id)
            && lease.claim().is_writer()
        {
            let (claim, round) = (lease.claim().clone(), lease.acquire_round);
            self.end_reservation(&claim, round, now);
            claim.downgrade();
            // Changes of the key by other readers do not concern the lease.
            self.forget_keys(id, &claim);
        }
        let call = self.begin_extension(id, None, Cause::Requested, now);
        self.settle(now);
        call
    }

    fn begin_extension(
        &mut self,
        id: LeaseId,
        ttl: Option<Ttl>,
        cause: Cause,
        now: Time,
    ) -> Result<RoundId, LeaseStatus> {
        let Some(lease) = self.leases.get_mut(id) else { return Err(LeaseStatus::Released) };
        let (ttl, round) = match ttl {
            Some(ttl) => (ttl, lease.renewal.begin(ttl, now)?),
            None => lease.renewal.begin_check(now)?,
        };
        let timeout = now.after(self.cx.settings.node_timeout);
        let close_at = match round.goal() {
            // A renewal round usually stays open for longer than the node timeout, because no caller waits for its result.
            // After the nodes have stalled, thousands of leases are renewed at the same time, and the last replies can
            // arrive after the node timeout. If these rounds were closed early, the client would repeat all renewals.
            Goal::Extend { current, .. } if cause == Cause::Renewal => {
                // The round ends before the validity, so that a process that is late still reads the replies in time.
                let left = current.since(now);
                now.after(left / 2).max(timeout).min(now.after(left / 8 * 7))
            }
            // An extension that is granted after the old end of validity does not count (I9).
            Goal::Extend { current, .. } => timeout.min(current),
            _ => timeout,
        };
        let until = now.after(ttl.as_duration());
        let owner = Owner::Extension { lease: id, cause, until };
        let call = self.rounds.insert(VoteCounter::new(owner, round, now, close_at));
        lease.handle_request();
        if cause == Cause::Check {
            lease.checks.handle_begun(close_at);
        }
        // Late votes in decided extension rounds no longer matter.
        let rounds = &mut self.rounds;
        lease.extensions.retain(|round| {
            let is_open = rounds.get(*round).is_some_and(|votes| votes.round().outcome().is_none());
            if !is_open {
                rounds.remove(*round);
            }
            is_open
        });
        lease.extensions.push(call);
        let watches = cause != Cause::Requested || lease.is_watched;
        lease.is_subscribed |= watches;
        let claim = lease.claim().clone();
        if cause != Cause::Check {
            // A check needs no timeout, because its votes are evaluated whenever they arrive.
            self.set_timeout(close_at, Timeout::Round(call));
        }
        let all = self.cx.settings.quorum.ids().collect();
        self.submit(all, &claim, Command::Extend { until, watches }, Some(call), now);
        Ok(call)
    }

    /// Handles the vote of `node` on an extension. `outcome` is `Some` if this vote decided the round. Once a quorum
    /// has granted the extension, the client also sets the keys again on nodes that have lost them.
    pub(super) fn handle_extension_vote(
        &mut self,
        call: RoundId,
        node: NodeId,
        outcome: Option<Outcome>,
        now: Time,
    ) {
        let Some(votes) = self.rounds.get(call) else { return };
        let Owner::Extension { lease: id, until, .. } = votes.owner else { return };
        let is_won = votes.round().outcome() == Some(Outcome::Won);
        let (is_granted, missing) = (votes.has_granted(node), votes.round().missing());
        if is_granted
            && outcome.is_none()
            && let Some(lease) = self.leases.get_mut(id)
        {
            lease.handle_grant(node);
        }
        if outcome.is_some() {
            self.complete_extension(call, now);
        }
        let Some(lease) = self.leases.get_mut(id).filter(|_| is_won) else { return };
        if !matches!(lease.renewal.status(now), LeaseStatus::Held { .. }) {
            return;
        }
        // A majority holds the keys, so the client sets them again on the nodes that lost them.
        let lost: NodeSet =
            missing.iter().filter(|lost| outcome.is_some() || *lost == node).collect();
        let claim = lease.claim().clone();
        self.submit(lost, &claim, Command::Repair { until }, None, now);
    }

    pub(super) fn forget_answered_extension(&mut self, call: RoundId) {
        let Some(votes) = self.rounds.get(call) else { return };
        let Owner::Extension { lease: id, .. } = votes.owner else { return };
        if votes.round().outcome().is_none() || !votes.is_answered() {
            return;
        }
        self.rounds.remove(call);
        if let Some(lease) = self.leases.get_mut(id) {
            lease.extensions.retain(|known| *known != call);
            if lease.extensions.is_empty() {
                lease.extensions = Vec::new();
            }
        }
    }

    /// Completes an extension whose round is decided or closed. Renewals and checks take effect immediately. A
    /// requested extension takes effect only when the caller receives the result. If the caller drops the future first,
    /// the validity does not change.
    pub(super) fn complete_extension(&mut self, call: RoundId, now: Time) {
        let Some(votes) = self.rounds.get(call) else { return };
        let Owner::Extension { lease: id, cause, .. } = votes.owner else { return };
        let Some(lease) = self.leases.get_mut(id) else { return };
        lease.handle_votes(votes);
        let slack = lease.renewal.valid_until(now).map_or(Duration::ZERO, |until| until.since(now));
        let extended = match cause {
            Cause::Requested => {
                let replies = Box::new(Replies::new(votes.clone(), self.cx.names().clone()));
                let completion = Completion::Extended { call, ended: None, replies };
                return self.completions.push_back(completion);
            }
            Cause::Renewal => {
                let extended = lease.extend(votes, now);
                self.emit_renewal(id, call, extended, slack, now);
                extended
            }
            Cause::Check => {
                let extended = lease.extend(votes, now);
                lease.checks.handle_end();
                extended
            }
        };
        self.handle_extension_end(id, extended, now);
    }

    /// Applies a requested extension when the caller receives the result. Returns [`LeaseStatus::Released`] if the
    /// lease no longer exists.
    pub(crate) fn handle_extended(&mut self, replies: &Replies, now: Time) -> Extended {
        let released = Extended::Ended(LeaseStatus::Released);
        let Owner::Extension { lease: id, .. } = replies.votes().owner else { return released };
        let Some(lease) = self.leases.get_mut(id) else { return released };
        let extended = lease.extend(replies.votes(), now);
        self.handle_extension_end(id, extended, now);
        self.settle(now);
        extended
    }

    fn handle_extension_end(&mut self, id: LeaseId, extended: Extended, now: Time) {
        if let Extended::Ended(status) = extended {
            self.handle_end(id, status, now);
        }
        self.step_lease(id, now);
    }

    /// Ends an extension because its lease has ended. If the holder requested the extension and it is still undecided,
    /// the holder receives the lease's end as the result.
    pub(super) fn end_extension(&mut self, call: RoundId, status: LeaseStatus) {
        let Some(votes) = self.rounds.remove(call) else { return };
        let is_requested = matches!(votes.owner, Owner::Extension { cause: Cause::Requested, .. });
        if is_requested && votes.round().outcome().is_none() {
            let status = if matches!(status, LeaseStatus::Held { .. }) {
                LeaseStatus::Released
            } else {
                status
            };
            let replies = Box::new(Replies::new(votes, self.cx.names().clone()));
            self.completions.push_back(Completion::Extended { call, ended: Some(status), replies });
        }
    }

    /// Emits an event for a completed renewal. `slack` is the validity that the lease had left before the renewal took
    /// effect.
    fn emit_renewal(
        &mut self,
        id: LeaseId,
        call: RoundId,
        extended: Extended,
        slack: Duration,
        now: Time,
    ) {
        let held = self.leases_by_key.len();
        let lock = self.lock_info(id);
        let Some((lock, lease)) = lock.zip(self.leases.get_mut(id)) else { return };
        let failures = lease.failures;
        match extended {
            Extended::Until(until) => {
                lease.failures = 0;
                let validity = until.since(now);
                self.cx.emit(EventLevel::Debug, |_| Event::LeaseRenewed {
                    lock,
                    slack,
                    validity,
                    failures,
                });
            }
            Extended::Unchanged(_) => {
                lease.failures = failures.saturating_add(1);
                // Only the first of several consecutive failures is reported as a warning.
                let level = if failures == 0 { EventLevel::Warn } else { EventLevel::Debug };
                let Some(votes) = self.rounds.get(call) else { return };
                self.cx.emit(level, |cx| Event::RenewalFailed {
                    lock,
                    failures: failures.saturating_add(1),
                    remaining: slack,
                    held,
                    report: votes.report(cx.names(), now),
                });
            }
            Extended::Ended(_) => {}
        }
    }

    /// Starts a check or a renewal of the lease if one is due. If the coordinator must notice the lease's end, also
    /// handles that end and sets the next timeout.
    pub(super) fn step_lease(&mut self, id: LeaseId, now: Time) {
        self.begin_check_if_due(id, now);
        let Some(lease) = self.leases.get_mut(id) else { return };
        if !lease.is_watched {
            return self.set_lease_timeout(id, None);
        }
        let until = match lease.renewal.step(now) {
            Step::Wait { until } => until,
            Step::Ended(status) => return self.handle_end(id, status, now),
            Step::Extend { ttl } => {
                // An error means that the lease has ended. The next step reports the end.
                let _ended = self.begin_extension(id, Some(ttl), Cause::Renewal, now).is_err();
                match self.leases.get_mut(id).map(|lease| lease.renewal.step(now)) {
                    Some(Step::Wait { until }) => until,
                    Some(Step::Ended(status)) => return self.handle_end(id, status, now),
                    Some(Step::Extend { .. }) | None => return,
                }
            }
        };
        self.set_lease_timeout(id, Some(until));
    }

    fn set_lease_timeout(&mut self, id: LeaseId, until: Option<Time>) {
        let Some(lease) = self.leases.get_mut(id) else { return };
        let at = [until, lease.checks.due()].into_iter().flatten().min();
        if at == lease.timeout {
            return;
        }
        lease.timeout = at;
        let Self { lease_timers, leases, .. } = self;
        if let Some(at) = at {
            lease_timers.set(at, id, |at, id| is_lease_current(at, id, leases));
        }
    }

    fn begin_check_if_due(&mut self, id: LeaseId, now: Time) {
        let Some(lease) = self.leases.get_mut(id) else { return };
        let Some(kind) = lease.checks.begin(now) else { return };
        if kind == CheckKind::Renewal {
            lease.renewal.make_due(now);
        }
        // An error means that the lease has ended. The next step reports the end.
        let _ended = self.begin_extension(id, None, Cause::Check, now).is_err();
    }

    /// Handles a change of a key of the lease on `node` by another client. If the lease may have lost its quorum,
    /// requests a check.
    pub(super) fn handle_lease_change(&mut self, id: LeaseId, node: NodeId, now: Time) {
        if !self.leases.get(id).is_some_and(|lease| lease.is_watched) {
            return;
        }
        let suspected = self.suspected_nodes(id, node);
        if suspected.is_some_and(|count| self.cx.settings.quorum.blocked(count)) {
            self.request_check(id, CheckKind::Check, now);
        }
    }

    /// Handles a forward step of the clock of `node` by at most `ahead`. If all recent steps together exceed the drift
    /// allowance of a lease, its keys may expire before the end of its validity. The client then extends the keys until
    /// the validity ends, and renews an auto-extended lease immediately.
    pub(super) fn handle_clock_step(&mut self, node: NodeId, ahead: Duration, now: Time) {
        self.steps.handle_step(node, ahead, now);
        for id in self.leases.ids() {
            let (steps, drift) = (&self.steps, self.cx.settings.drift);
            let lease = self.leases.get(id);
            if lease.is_some_and(|lease| lease.may_end_early(drift, |t1| steps.since(t1))) {
                self.request_check(id, CheckKind::Renewal, now);
            }
        }
    }

    pub(super) fn request_check(&mut self, id: LeaseId, kind: CheckKind, now: Time) {
        if let Some(lease) = self.leases.get_mut(id) {
            lease.checks.request(kind);
            self.step_lease(id, now);
        }
    }
}
