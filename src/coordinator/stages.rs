//! The stages of an acquire: waiting for connections, waiting in a queue, attempts with pauses between them, and
//! delivery of the lease.

use super::acquire::{Acquire, AcquireRequest, Phase, Stage};
use super::completion::{AcquireFailure, Completion};
use super::rotation::Rotation;
use super::slots::AcquireId;
use super::state::Coordinator;
use super::timeout::Timeout;
use super::votes::{Owner, VoteCounter};
use crate::observe::EventLevel;
use crate::observe::event::{AttemptOutcome, Event, LockInfo};
use crate::protocol::{Acquisition, Goal, NodeSet, Outcome, Refusal, Round, Time};
use std::time::Duration;

/// Added to the connect timeout to obtain the maximum time that an acquire waits for the client's first connections.
const CONNECT_MARGIN: Duration = Duration::from_millis(100);

pub(super) enum Step {
    Continue,
    /// Wait until this time or an earlier event.
    Wait(Time),
    Over,
}

impl Coordinator {
    /// Starts an acquire. Unless it is cancelled, the acquire ends with [`Completion::Acquired`] or
    /// [`Completion::AcquireFailed`].
    pub(crate) fn handle_acquire(&mut self, mut request: AcquireRequest, now: Time) -> AcquireId {
        let settings = &self.cx.settings;
        let deadline = request.deadline.unwrap_or(Time::END);
        let schedule = std::mem::replace(
            &mut request.schedule,
            crate::protocol::RetryPolicy::none().schedule(),
        );
        let limits = (request.ttl, settings.drift);
        let is_reader = request.sharing.as_ref().is_some_and(|sharing| sharing.is_reader);
        let acquisition =
            Acquisition::new(settings.quorum, limits, settings.node_timeout, deadline, schedule)
                .giving_up_early(request.gives_up_early)
                .fenced(request.counters.is_some())
                .with_shared_token(is_reader)
                .with_max_hold(request.max_hold);
        let limit = settings.connect_timeout.saturating_add(CONNECT_MARGIN);
        let stage = Stage::Connecting { until: now.after(limit).min(deadline) };
        let (keys, waits) = (request.keys.clone(), request.deadline.is_some());
        let any_of = request.any_of.clone();
        let rotation = any_of
            .is_some()
            .then(|| Box::new(Rotation::new(keys.clone(), acquisition.is_endless())));
        let id = self.acquires.insert(Acquire::new(request, acquisition, rotation, stage, now));
        if waits && is_reader {
            self.queues.join_readers(id, &keys);
        } else if waits {
            self.queues.join(id, &keys, any_of.as_ref(), now);
        }
        self.advance(id, now);
        self.settle(now);
        id
    }

    pub(crate) fn handle_cancel(&mut self, id: AcquireId, now: Time) {
        self.end_acquire(id, now);
        self.settle(now);
    }

    pub(super) fn advance(&mut self, id: AcquireId, now: Time) {
        loop {
            match self.step(id, now) {
                Step::Continue => {}
                Step::Over => return,
                Step::Wait(at) => {
                    if let Some(acquire) = self.acquires.get_mut(id)
                        && acquire.timeout != Some(at)
                    {
                        acquire.timeout = Some(at);
                        self.set_timeout(at, Timeout::Acquire(id));
                    }
                    return;
                }
            }
        }
    }

    fn step(&mut self, id: AcquireId, now: Time) -> Step {
        if self.is_closing() {
            return self.fail_closed(id, now);
        }
        let is_warm = self.is_warm(now);
        let Some(acquire) = self.acquires.get_mut(id) else { return Step::Over };
        let deadline = acquire.deadline();
        match acquire.stage {
            Stage::Connecting { until } if !is_warm && now < until => Step::Wait(until),
            Stage::Connecting { .. } => self.enter_stage(id, Stage::Queued),
            Stage::Queued if !self.queues.is_first(id) => {
                self.begin_wait(id, now);
                if now >= deadline { self.fail_out_of_time(id, now) } else { Step::Wait(deadline) }
            }
            Stage::Queued => {
                let is_new = acquire.attempts == 0 && acquire.refused.is_none();
                let first_try_at = self.queues.first_try_at(id).filter(|_| is_new);
                let at = first_try_at.unwrap_or(now).min(deadline);
                if now < at {
                    return Step::Wait(at);
                }
                let timeout = self.cx.settings.node_timeout;
                let until = acquire.terms.deadline.unwrap_or(now.after(timeout));
                self.enter_stage(id, Stage::Blocked { until, is_queued: false })
            }
            Stage::Blocked { until, .. }
                if self.limit.is_reached(self.attempts) && now >= until =>
            {
                self.fail_overloaded(id, now)
            }
            Stage::Blocked { until, is_queued } if self.limit.is_reached(self.attempts) => {
                if !is_queued {
                    acquire.stage = Stage::Blocked { until, is_queued: true };
                    self.blocked.push_back(id);
                }
                Step::Wait(until)
            }
            Stage::Blocked { .. } if acquire.acquisition.is_over(now).is_some() => {
                self.pass_permit();
                self.fail_out_of_time(id, now)
            }
            Stage::Blocked { .. } => self.begin_attempt(id, now),
            Stage::Attempting(_) => self.step_attempt(id, now),
            Stage::Resting { until } => {
                let at = self.queues.try_at(id).map_or(until, |at| at.min(until));
                if now < at { Step::Wait(at) } else { self.enter_stage(id, Stage::Queued) }
            }
            Stage::Delivered { .. } => self.step_delivered(id, now),
            Stage::Revoked { .. } if now < deadline => Step::Wait(deadline),
            Stage::Revoked { .. } => self.fail_untaken(id, now),
        }
    }

    pub(super) fn enter_stage(&mut self, id: AcquireId, stage: Stage) -> Step {
        let Some(acquire) = self.acquires.get_mut(id) else { return Step::Over };
        acquire.stage = stage;
        Step::Continue
    }

    /// Emits [`Event::WaitStarted`], at most once per acquire.
    pub(super) fn begin_wait(&mut self, id: AcquireId, now: Time) {
        if !self.cx.wants(EventLevel::Debug) {
            return;
        }
        let prefix = self.cx.settings.prefix;
        if let Some(acquire) =
            self.acquires.get_mut(id).filter(|acquire| acquire.wait_began.is_none())
        {
            acquire.wait_began = Some(now);
            let lock = acquire.lock(prefix);
            self.cx.emit(EventLevel::Debug, |_| Event::WaitStarted { lock });
        }
    }

    /// Fails an acquire whose deadline has passed. The error reports the last refused attempt of the acquire. If there
    /// was none, the error reports the last refused attempt by the head of the queue, or else a timeout.
    pub(super) fn fail_out_of_time(&mut self, id: AcquireId, now: Time) -> Step {
        let Some(acquire) = self.acquires.get(id) else { return Step::Over };
        let own = acquire.refused.and_then(|round| self.rounds.get(round));
        let refused = own.or_else(|| self.queues.refused(id).map(|votes| &**votes));
        if let Some(votes) = refused {
            let failure = self.out_of_time(votes, now);
            return self.fail(id, failure, now);
        }
        let connected = self.connected();
        let round = Round::new(self.cx.settings.quorum, Goal::Survey);
        let mut votes = VoteCounter::new(Owner::Acquire(id), round, acquire.begun, now);
        votes.close(connected, now);
        votes.record_held_up(false, |node| connected.contains(node));
        let failure = self.refused(Refusal::Timeout, &votes, now);
        self.fail(id, failure, now)
    }

    pub(super) fn out_of_time(&self, votes: &VoteCounter, now: Time) -> AcquireFailure {
        let refusal = match votes.round().outcome() {
            Some(Outcome::NoQuorum) | None => Refusal::NoQuorum,
            Some(Outcome::TooLate) => Refusal::Expired,
            Some(Outcome::Denied | Outcome::Missing | Outcome::Won) => Refusal::Contended,
        };
        self.refused(refusal, votes, now)
    }

    pub(super) fn refused(
        &self,
        refusal: Refusal,
        votes: &VoteCounter,
        now: Time,
    ) -> AcquireFailure {
        let report = votes.report(self.cx.names(), now);
        AcquireFailure::Refused { refusal, report, is_overloaded: votes.is_overloaded() }
    }

    fn fail_overloaded(&mut self, id: AcquireId, now: Time) -> Step {
        let refused = self.acquires.get(id).and_then(|acquire| self.rounds.get(acquire.refused?));
        let report = refused.map(|votes| votes.report(self.cx.names(), now));
        self.fail(id, AcquireFailure::Overloaded { report }, now)
    }

    /// Fails an acquire because the client is closed. Releases a lease that the caller has not taken yet.
    fn fail_closed(&mut self, id: AcquireId, now: Time) -> Step {
        match self.acquires.get(id).map(|acquire| &acquire.stage) {
            None => Step::Over,
            Some(Stage::Delivered { lease, .. }) => {
                let lease = *lease;
                let shared = self.leases.get(lease).map(|lease| lease.shared.clone());
                if shared.is_some_and(|shared| !shared.revoke()) {
                    self.acquires.remove(id);
                    return Step::Over;
                }
                self.drop_lease(lease, now);
                self.fail(id, AcquireFailure::Closed, now)
            }
            Some(_) => {
                self.emit_attempt(id, AttemptOutcome::Abandoned, now);
                self.fail(id, AcquireFailure::Closed, now)
            }
        }
    }

    pub(super) fn fail(&mut self, acquire: AcquireId, failure: AcquireFailure, now: Time) -> Step {
        self.end_acquire(acquire, now);
        self.completions.push_back(Completion::AcquireFailed { acquire, failure });
        Step::Over
    }

    /// Removes the acquire. Releases the keys that its current attempt may have set, and a lease that the caller has
    /// not taken yet.
    fn end_acquire(&mut self, id: AcquireId, now: Time) {
        let prefix = self.cx.settings.prefix;
        let Some(mut acquire) = self.acquires.remove(id) else { return };
        let stage = std::mem::replace(&mut acquire.stage, Stage::Queued);
        match stage {
            Stage::Attempting(attempt) => {
                self.abandon_attempt(&attempt, now);
                self.end_attempt();
                self.forget_round(Some(attempt.round));
                self.forget_round(attempt.confirmation);
            }
            Stage::Delivered { lease, .. } => {
                let lease_shared = self.leases.get(lease).map(|lease| lease.shared.clone());
                if lease_shared.is_some_and(|shared| shared.revoke()) {
                    self.drop_lease(lease, now);
                }
            }
            Stage::Connecting { .. }
            | Stage::Queued
            | Stage::Blocked { .. }
            | Stage::Resting { .. }
            | Stage::Revoked { .. } => {}
        }
        self.release_reservation(acquire.terms.reservation.as_ref(), NodeSet::default(), now);
        self.forget_round(acquire.refused);
        self.leave_queue(id, now);
        if let Some(began) = acquire.wait_began {
            let (lock, elapsed) = (acquire.lock(prefix), now.since(began));
            self.cx.emit(EventLevel::Debug, |_| Event::WaitFinished { lock, elapsed });
        }
    }

    /// Handles a node's vote in an acquire round. `outcome` is `None` if the vote has not decided the round.
    pub(super) fn handle_acquire_vote(
        &mut self,
        id: AcquireId,
        outcome: Option<Outcome>,
        now: Time,
    ) {
        let Some(acquire) = self.acquires.get(id) else { return };
        match &acquire.stage {
            Stage::Attempting(attempt) => {
                // While the round is undecided, a vote matters only if the attempt has contacted a single node, or if
                // deferred grants will form a quorum later.
                let is_first = matches!(attempt.phase, Phase::First(_));
                let round = attempt.current_round();
                let is_deferred =
                    || self.rounds.get(round).is_some_and(|votes| votes.round().due().is_some());
                if is_first || outcome.is_some() || is_deferred() {
                    self.advance(id, now);
                }
            }
            // A node can report a conflicting key after an attempt for several keys was refused.
            Stage::Resting { .. }
                if outcome.is_none() && self.queues.handle_conflicts(id, &self.rounds, now) =>
            {
                self.advance(id, now);
            }
            _ => {}
        }
    }

    pub(super) fn leave_queue(&mut self, id: AcquireId, now: Time) {
        let mut ready = Vec::new();
        self.queues.leave(id, &self.rounds, now, &mut ready);
        self.ready.extend(ready);
    }
}

impl Acquire {
    pub(super) fn lock(&self, prefix: usize) -> LockInfo {
        self.terms.tag.lock(&self.terms.keys, prefix)
    }
}
