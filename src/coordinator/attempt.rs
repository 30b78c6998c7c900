//! Acquire attempts. An attempt is one acquire round, followed by a second round if the fencing token must be
//! confirmed.

use super::acquire::{Acquire, Attempt, Phase, Stage};
use super::claim::Claim;
use super::command::NodeCommand;
use super::completion::Completion;
use super::round_command::RoundCommand;
use super::slots::{AcquireId, RoundId};
use super::stages::Step;
use super::state::Coordinator;
use super::votes::{Owner, VoteCounter};
use crate::observe::EventLevel;
use crate::observe::event::{AttemptOutcome, Event};
use crate::protocol::{Next, NodeId, NodeSet, Outcome, Refusal, Time};
use crate::wire::Command;
use std::sync::Arc;
use std::time::Duration;

/// The number of concurrent attempts at which the client counts as overloaded. An overloaded client does not blame slow
/// replies on the nodes. Unresponsive nodes alone do not cause this many concurrent attempts, because attempts on such
/// nodes end immediately.
const OVERLOAD_THRESHOLD: usize = 1 << 10;

/// How long an attempt without a deadline waits for deferred grants. A grant is deferred if the node's clock has
/// stepped forward.
const MAX_DEFERRED_WAIT: Duration = Duration::from_secs(1);

/// The maximum pause after an attempt that contacted a single node and was refused. The next attempt contacts all
/// nodes.
const CONTACT_ALL_DELAY: Duration = Duration::from_millis(3);

impl Coordinator {
    pub(super) fn begin_attempt(&mut self, id: AcquireId, now: Time) -> Step {
        let candidates = self.take_candidates(id, now);
        let is_continued = candidates.as_ref().is_some_and(|it| it.is_continued);
        let first = self.first_node(id);
        self.reserve(id, now);
        let Some(acquire) = self.acquires.get_mut(id) else { return Step::Over };
        let tries_all =
            !is_continued && !acquire.rotation.as_ref().is_some_and(|it| it.has_untried());
        let first = first.filter(|_| tries_all);
        let terms = acquire.terms.clone();
        let names_holder = acquire.refused.is_some() || first.is_some();
        // `now` is T1, which the caller has read before the first command is sent (I4).
        let (round, close_at) = acquire.acquisition.begin(now);
        let claim = self.new_claim(&terms, candidates.as_ref(), now);
        let previous =
            terms.adopts.as_ref().and_then(|value| self.find_lease(terms.keys.first(), value));
        let votes = VoteCounter::new(Owner::Acquire(id), round, now, close_at);
        let votes = if candidates.is_some() { votes.of_one_key() } else { votes };
        let round = self.rounds.insert(votes);
        self.queues.begin(id, round, claim.keys(), is_continued);
        self.attempts += 1;
        let first_key = candidates.map(|candidates| candidates.first);
        let command = terms.command(names_holder, first_key);
        let nodes: NodeSet = self.cx.settings.quorum.ids().collect();
        let nodes = first.map_or(nodes, |first| [first].into_iter().collect());
        self.submit(nodes, &claim, command, Some(round), now);
        let limit = terms.deadline.unwrap_or_else(|| now.after(MAX_DEFERRED_WAIT)).max(close_at);
        let attempt = Attempt {
            claim,
            t1: now,
            phase: first.map_or(Phase::All, Phase::First),
            round,
            confirmation: None,
            limit,
            names_holder,
            was_crowded: self.attempts >= OVERLOAD_THRESHOLD,
            previous,
        };
        self.enter_stage(id, Stage::Attempting(attempt))
    }

    /// Chooses the node that the next attempt contacts first. Returns `None` if the attempt must contact all nodes in
    /// parallel. Prefers nodes that have reported the deletion of the key. All clients choose the same node for the
    /// same key, and different nodes for different keys.
    fn first_node(&mut self, id: AcquireId) -> Option<NodeId> {
        let acquire = self.acquires.get_mut(id)?;
        let asks_all = std::mem::take(&mut acquire.asks_all);
        if asks_all || acquire.terms.sharing.is_some() || !acquire.acquisition.is_endless() {
            return None;
        }
        let freed = self.queues.asks_one_of(id)?;
        let sum = |sum: usize, byte: &u8| sum.wrapping_mul(31).wrapping_add(usize::from(*byte));
        let count = self.cx.settings.quorum.nodes();
        let start = acquire.terms.keys.first().iter().fold(0, sum) % count;
        let mut ids = (start..count).chain(0..start).map(NodeId::new);
        let is_free = |node| freed.len() == 0 || freed.contains(node);
        ids.find(|node| is_free(*node) && self.nodes[*node].is_connected())
    }

    pub(super) fn step_attempt(&mut self, id: AcquireId, now: Time) -> Step {
        let connected = self.connected();
        let Some(acquire) = self.acquires.get(id) else { return Step::Over };
        let Some(attempt) = acquire.attempt() else { return Step::Over };
        let (phase, limit) = (attempt.phase, attempt.limit);
        let current = attempt.current_round();
        let Some(votes) = self.rounds.get_mut(current) else { return Step::Over };
        let is_due = votes.is_due(connected, now);
        let close_at = votes.close_at;
        if let Phase::First(node) = phase {
            let has_voted = votes.has_replied(node);
            return match has_voted {
                true if votes.has_granted(node) => self.ask_others(id, node, now),
                false if !is_due => Step::Wait(close_at),
                _ => self.handle_single_refusal(id, node, now),
            };
        }
        if votes.round().outcome().is_none() {
            // Deferred grants count only from a later time. The attempt waits for them, even beyond the node timeout.
            let due = votes.round().due().filter(|due| *due <= limit);
            match due {
                Some(due) if now < due => return Step::Wait(due),
                Some(_) => _ = votes.handle_time(now),
                None if !is_due => return Step::Wait(close_at),
                None => _ = votes.close(connected, now),
            }
            return Step::Continue;
        }
        self.compare_permits(id);
        self.evaluate(id, connected, now)
    }

    fn ask_others(&mut self, id: AcquireId, first: NodeId, now: Time) -> Step {
        let Some(acquire) = self.acquires.get_mut(id) else { return Step::Over };
        let terms = acquire.terms.clone();
        let Some(attempt) = acquire.attempt_mut() else { return Step::Over };
        let set_key = self.rounds.get(attempt.round).and_then(|votes| votes.set_key(first));
        let command = terms.command(attempt.names_holder, set_key);
        attempt.phase = Phase::All;
        let (claim, round) = (attempt.claim.clone(), attempt.round);
        let others = self.cx.settings.quorum.ids().filter(|node| *node != first).collect();
        self.submit(others, &claim, command, Some(round), now);
        Step::Continue
    }

    /// Continues the acquire after its round was decided: delivers the lease, starts to confirm the fencing token,
    /// schedules a retry, or fails the acquire.
    fn evaluate(&mut self, id: AcquireId, connected: NodeSet, now: Time) -> Step {
        let random = self.cx.random.number();
        let Some(attempt) = self.acquires.get(id).and_then(Acquire::attempt) else {
            return Step::Over;
        };
        let is_crowded = attempt.was_crowded || self.attempts >= OVERLOAD_THRESHOLD;
        let (claim, current) = (attempt.claim.clone(), attempt.current_round());
        self.adapt_limit(current, now);
        let Some(acquire) = self.acquires.get_mut(id) else { return Step::Over };
        let Some(votes) = self.rounds.get_mut(current) else { return Step::Over };
        votes.record_held_up(is_crowded, |node| {
            connected.contains(node) && (is_crowded || claim.is_late(node))
        });
        votes.record_not_asked(|node| connected.contains(node) && !claim.is_written(node));
        if claim.fence().is_some() {
            let numbers = votes.round().counters().iter().map(|(_, number)| *number);
            self.highest_number = numbers.fold(self.highest_number, u64::max);
        }
        let has_untried = acquire.rotation.as_ref().is_some_and(|it| it.has_untried());
        if has_untried
            && votes.round().outcome() == Some(Outcome::Denied)
            && now < acquire.deadline()
        {
            return self.try_more_keys(id, now);
        }
        self.record_free_at(id, now);
        let Some(acquire) = self.acquires.get_mut(id) else { return Step::Over };
        let Some(votes) = self.rounds.get(current) else { return Step::Over };
        if let Some(due) = acquire.rotation.as_mut().and_then(|it| it.end()) {
            acquire.acquisition.handle_earlier_free_at(due);
        }
        match acquire.acquisition.handle_outcome(votes.round(), now, random) {
            Next::Lease { valid_until, token } => {
                self.choose_key(id);
                self.win(id, valid_until, token, now)
            }
            Next::Confirm { valid_until, token } => {
                self.choose_key(id);
                self.confirm(id, valid_until, token, now)
            }
            Next::Retry { at } => {
                self.emit_attempt(id, AttemptOutcome::Refused, now);
                self.retry(id, at, now)
            }
            Next::Refuse { refusal, latest } => {
                self.emit_attempt(id, AttemptOutcome::Refused, now);
                self.refuse(id, refusal, latest, now)
            }
        }
    }

    fn confirm(&mut self, id: AcquireId, valid_until: Time, token: u64, now: Time) -> Step {
        let Some(acquire) = self.acquires.get_mut(id) else { return Step::Over };
        let (round, close_at) = acquire.acquisition.begin_confirm(valid_until, token, now);
        let Some(attempt) = acquire.attempt_mut() else { return Step::Over };
        let votes = VoteCounter::new(Owner::Acquire(id), round, now, close_at);
        let round = self.rounds.insert(votes);
        attempt.phase = Phase::Confirming;
        attempt.confirmation = Some(round);
        self.confirmations += 1;
        attempt.limit = attempt.limit.max(close_at);
        let claim = attempt.claim.clone();
        let all = self.cx.settings.quorum.ids().collect();
        self.submit(all, &claim, Command::ConfirmToken { token }, Some(round), now);
        Step::Continue
    }

    fn win(&mut self, id: AcquireId, valid_until: Time, token: Option<u64>, now: Time) -> Step {
        self.emit_attempt(id, AttemptOutcome::Won, now);
        let prefix = self.cx.settings.prefix;
        let Some(acquire) = self.acquires.get_mut(id) else { return Step::Over };
        let stage = std::mem::replace(&mut acquire.stage, Stage::Queued);
        let Stage::Attempting(attempt) = stage else { return Step::Over };
        let (mut terms, refused) = (acquire.terms.clone(), acquire.refused.take());
        // The lease releases the reservation.
        acquire.terms.reservation = None;
        let waited =
            acquire.wait_began.take().map(|began| (acquire.lock(prefix), now.since(began)));
        if let Some((token, counters)) = token.zip(attempt.claim.fence()) {
            let numbers = self.rounds.get(attempt.round).map(|votes| votes.round().counters());
            counters.commit(token, numbers.unwrap_or_default());
        }
        if terms.any_of.is_some() {
            terms.keys = attempt.claim.keys().clone();
            self.set_chosen_key(&attempt, terms.ttl, now);
        }
        self.end_attempt();
        self.forget_round(refused);
        self.forget_round(attempt.confirmation);
        let mut ready = Vec::new();
        self.queues.handle_win(id, now, &mut ready);
        self.ready.extend(ready);
        let lease = self.insert_lease(id, &terms, &attempt, valid_until, now);
        self.leave_queue(id, now);
        if let Some((lock, elapsed)) = waited {
            self.cx.emit(EventLevel::Debug, |_| Event::WaitFinished { lock, elapsed });
        }
        if let Some(shared) = self.leases.get(lease).map(|lease| lease.shared.clone()) {
            let since = attempt.t1;
            self.completions.push_back(Completion::Acquired { acquire: id, lease, shared, since });
        }
        self.enter_stage(id, Stage::Delivered { lease, since: now })
    }

    /// Ends a refused attempt and schedules the next one for `at`. If the vote of a node that did not count in this
    /// attempt counts again before `at`, the next attempt starts at that earlier time.
    fn retry(&mut self, id: AcquireId, at: Time, now: Time) -> Step {
        let counts_again_at = self.end_refused(id, now);
        self.begin_wait(id, now);
        let (random, mut ready) = (self.cx.random.number(), Vec::new());
        self.queues.handle_refusal(id, &self.rounds, now, random, &mut ready);
        self.ready.extend(ready);
        let rotation = self.acquires.get_mut(id).and_then(|acquire| acquire.rotation.as_mut());
        let at = rotation.map_or(at, |rotation| rotation.handle_refusal(at));
        let until = counts_again_at.map_or(at, |again| at.min(again));
        self.enter_stage(id, Stage::Resting { until })
    }

    /// Fails the acquire with `refusal`. If `latest` is true, the error reports the nodes' replies to the current
    /// attempt. Otherwise, it reports the replies to the last refused attempt.
    fn refuse(&mut self, id: AcquireId, refusal: Refusal, latest: bool, now: Time) -> Step {
        let Some(acquire) = self.acquires.get(id) else { return Step::Over };
        let current = acquire.attempt().map(Attempt::current_round);
        let reason = acquire.refused.filter(|_| !latest).or(current);
        // If the deadline ended the attempt, the last refusal of the queue's head explains the failure better.
        let head = self.queues.refused(id).filter(|_| refusal == Refusal::Timeout);
        let failure = match (head, reason.and_then(|round| self.rounds.get(round))) {
            (Some(votes), _) => self.out_of_time(votes, now),
            (None, Some(votes)) => self.refused(refusal, votes, now),
            (None, None) => return Step::Over,
        };
        self.end_refused(id, now);
        self.fail(id, failure, now)
    }

    /// Handles an attempt that contacted only `node` and was not granted. If the node will push the deletion of the
    /// key, the acquire waits for the push. Otherwise, the next attempt contacts all nodes.
    fn handle_single_refusal(&mut self, id: AcquireId, node: NodeId, now: Time) -> Step {
        let Some(acquire) = self.acquires.get(id) else { return Step::Over };
        let Some(attempt) = acquire.attempt() else { return Step::Over };
        let round = attempt.round;
        let free_at = self.rounds.get(round).and_then(|votes| votes.pushed_expiry(node));
        self.release_refused(id, now);
        let random = self.cx.random.number();
        let mut until = now;
        if let Some(acquire) = self.acquires.get_mut(id) {
            acquire.asks_all = free_at.is_none();
            if let Some(free_at) = free_at {
                until = acquire.acquisition.handle_single_refusal(free_at, now, random);
                if acquire.refused.is_none() {
                    // No other node has refused yet. A key left over on this node alone must not delay the acquire.
                    acquire.asks_all = true;
                    until = until.min(now.after(CONTACT_ALL_DELAY));
                }
            }
            if let Some(rotation) = &mut acquire.rotation {
                until = rotation.handle_refusal(until);
            }
        }
        if free_at.is_some() {
            self.queues.handle_single_refusal(id, node, &self.rounds, now, random);
        }
        self.forget_round(Some(round));
        self.enter_stage(id, Stage::Resting { until })
    }

    /// Ends a refused attempt, and keeps its last round for error reports. If the votes of some nodes did not count,
    /// returns the earliest time at which one of these votes counts again. Returns `None` if no such time is known.
    pub(super) fn end_refused(&mut self, id: AcquireId, now: Time) -> Option<Time> {
        let attempt = self.acquires.get(id)?.attempt()?;
        let (round, current) = (attempt.round, attempt.current_round());
        self.release_refused(id, now);
        let acquire = self.acquires.get_mut(id)?;
        let earlier = acquire.refused.replace(current);
        self.forget_round(earlier);
        self.forget_round(Some(round).filter(|round| *round != current));
        self.rounds.get(current).and_then(VoteCounter::counts_again_at)
    }

    /// Releases the keys that a refused attempt may have set. Other acquires of this client are not notified, because
    /// these keys exist only for about one round trip.
    fn release_refused(&mut self, id: AcquireId, now: Time) {
        let Some(acquire) = self.acquires.get_mut(id) else { return };
        let stage = std::mem::replace(&mut acquire.stage, Stage::Queued);
        let Stage::Attempting(attempt) = stage else { return };
        attempt.claim.handle_refusal();
        self.end_previous(&attempt, now);
        self.release_unchosen(&attempt.claim, attempt.round, false, now);
        self.release_claim(&attempt.claim, None, None, now);
        self.end_attempt();
    }

    /// Releases the keys that an abandoned attempt may have set. Other acquires of this client are notified, because
    /// they may have been refused while the attempt held the lock.
    pub(super) fn abandon_attempt(&mut self, attempt: &Attempt, now: Time) {
        self.end_previous(attempt, now);
        self.release_unchosen(&attempt.claim, attempt.round, false, now);
        self.release_claim(&attempt.claim, None, None, now);
        self.handle_local_release(&attempt.claim, None, now, now);
    }

    /// If the failed attempt tried to adopt a lease of this client, and a node may have replaced the lease's value,
    /// ends that lease. The lease must end before the attempt's keys are released, because another client can then
    /// acquire the lock.
    fn end_previous(&mut self, attempt: &Attempt, now: Time) {
        // The withdrawn claim writes no further command except its release.
        attempt.claim.withdraw();
        if let Some(previous) = attempt.previous.filter(|_| attempt.claim.may_be_set()) {
            self.take_over(previous, now);
        }
    }

    pub(super) fn emit_attempt(&mut self, id: AcquireId, outcome: AttemptOutcome, now: Time) {
        let prefix = self.cx.settings.prefix;
        let Some(acquire) = self.acquires.get_mut(id) else { return };
        acquire.attempts = acquire.attempts.saturating_add(1);
        let number = acquire.attempts;
        let Some(attempt) = acquire.attempt() else { return };
        let (t1, round, confirmation) = (attempt.t1, attempt.round, attempt.confirmation);
        let (lock, elapsed) = (Acquire::lock(acquire, prefix), now.since(t1));
        let report = |round| Some(self.rounds.get(round)?.report(self.cx.names(), now));
        if self.cx.wants(EventLevel::Debug)
            && let Some(first) = report(round)
        {
            let confirmation = confirmation.and_then(report);
            self.cx.emit(EventLevel::Debug, |_| Event::AttemptFinished {
                lock,
                number,
                outcome,
                elapsed,
                report: first,
                confirmation,
            });
        }
    }

    pub(super) fn submit(
        &mut self,
        nodes: NodeSet,
        claim: &Arc<Claim>,
        command: Command,
        round: Option<RoundId>,
        now: Time,
    ) {
        let shared = Arc::new(RoundCommand::new(claim.clone(), command));
        for node in nodes.iter() {
            let command = NodeCommand::new(shared.clone(), round);
            self.nodes.submit(node, command, now, &mut self.cx);
        }
    }
}
