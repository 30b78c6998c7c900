//! Acquires of one of several resources.
//!
//! Each attempt carries some of the keys, in [rotation](super::rotation::Rotation). A node sets the first of them that
//! is free. A quorum must have set the same key; the keys that other nodes have set are released.

use super::acquire::{Attempt, SharingTerms, Stage, Terms};
use super::claim::Claim;
use super::rotation::Candidates;
use super::slots::{AcquireId, LeaseId, RoundId};
use super::stages::Step;
use super::state::Coordinator;
use super::votes::VoteCounter;
use crate::observe::event::AttemptOutcome;
use crate::protocol::{NodeId, NodeSet, Outcome, Time, Ttl, hint};
use crate::wire::{Answer, Command, Counters, Holding, Value};
use std::sync::Arc;

impl Coordinator {
    /// Returns the keys for the next attempt of an acquire of any one of several keys.
    pub(super) fn take_candidates(&mut self, id: AcquireId, now: Time) -> Option<Candidates> {
        let rotation = self.acquires.get_mut(id)?.rotation.as_mut()?;
        if !rotation.has_untried() {
            let freed = self.queues.take_freed_keys(id);
            rotation.restart(&freed, now, self.cx.random.number());
        }
        Some(rotation.take_candidates())
    }

    /// After a quorum has set the same key, reduces the attempt's claim to that key.
    pub(super) fn choose_key(&mut self, id: AcquireId) {
        let Some(acquire) = self.acquires.get_mut(id) else { return };
        let Some(attempt) = acquire.attempt_mut().filter(|it| it.claim.is_any()) else { return };
        let Some(votes) = self.rounds.get(attempt.round) else { return };
        let Some(place) = votes.chosen_key() else { return };
        let Some(chosen) = attempt.claim.choose(place, votes.round().granted()) else { return };
        attempt.claim.withdraw();
        attempt.claim = Arc::new(chosen);
    }

    /// Sets the chosen key of a new lease on the nodes that have set another key or none, after the release of the
    /// other keys. Nodes that have not replied follow in [`handle_late_vote`](Self::handle_late_vote).
    pub(super) fn set_chosen_key(&mut self, attempt: &Attempt, ttl: Ttl, now: Time) {
        let Some(votes) = self.rounds.get(attempt.round) else { return };
        let nodes = may_lack_chosen_key(votes);
        let unwritten = self.cx.settings.quorum.ids().filter(|it| !attempt.claim.is_written(*it));
        let unset = nodes.union(unwritten.collect());
        let until = attempt.t1.after(ttl.as_duration());
        self.release_other_keys(&attempt.claim, nodes, now);
        self.submit(unset, &attempt.claim, Command::Repair { until }, None, now);
    }

    /// Handles the vote of `node` in the acquire round of a lease. If the lease holds one of several keys, and the node
    /// may have set another one, releases the other keys and sets the chosen one.
    pub(super) fn handle_late_vote(&mut self, id: LeaseId, node: NodeId, now: Time) {
        let Some(lease) = self.leases.get(id).filter(|lease| lease.any_of.is_some()) else {
            return;
        };
        let Some(votes) = self.rounds.get(lease.acquire_round) else { return };
        if may_lack_chosen_key(votes).contains(node) {
            let (claim, (t1, ttl)) = (lease.claim().clone(), lease.basis);
            let (nodes, until) = (NodeSet::from_iter([node]), t1.after(ttl.as_duration()));
            self.release_other_keys(&claim, nodes, now);
            self.submit(nodes, &claim, Command::Repair { until }, None, now);
        }
    }

    /// Releases the keys that `claim` has not chosen on the nodes that received its acquire in `round` and have not
    /// replied. If `claim` belongs to no lease yet, also releases them on the other nodes that may have set one.
    pub(super) fn release_unchosen(
        &mut self,
        claim: &Claim,
        round: RoundId,
        is_lease: bool,
        now: Time,
    ) {
        let Some(votes) = self.rounds.get(round).filter(|_| claim.has_other_keys()) else { return };
        let silent = self.cx.settings.quorum.ids().filter(|node| !votes.has_replied(*node));
        let silent = silent.collect::<NodeSet>().without(votes.without_conflict());
        let others = if is_lease { NodeSet::default() } else { may_lack_chosen_key(votes) };
        self.release_other_keys(claim, others.union(silent), now);
    }

    /// Releases the keys that `claim` has not chosen on `nodes`, if it is the claim to one of several keys.
    pub(super) fn release_other_keys(&mut self, claim: &Claim, nodes: NodeSet, now: Time) {
        if nodes.len() > 0
            && let Some(others) = claim.other_keys()
        {
            self.submit(nodes, &Arc::new(others), Command::ReleaseAny, None, now);
        }
    }

    /// Continues an acquire of one of several keys after its attempt was refused, with keys that were not tried yet.
    pub(super) fn try_more_keys(&mut self, id: AcquireId, now: Time) -> Step {
        self.emit_attempt(id, AttemptOutcome::Refused, now);
        if let Some(acquire) = self.acquires.get_mut(id)
            && let Some(attempt) = acquire.attempt()
            && let Some(votes) = self.rounds.get(attempt.round)
        {
            acquire.acquisition.handle_more_keys(votes.round());
        }
        self.record_free_at(id, now);
        self.end_refused(id, now);
        self.enter_stage(id, Stage::Queued)
    }

    /// Records when the first key of the refused attempt becomes free, for an acquire of one of several keys. If the nodes
    /// did not report that the keys are held, all keys are tried again.
    pub(super) fn record_free_at(&mut self, id: AcquireId, now: Time) {
        let Some(acquire) = self.acquires.get_mut(id) else { return };
        let votes = acquire.attempt().and_then(|attempt| self.rounds.get(attempt.round));
        let Some((rotation, votes)) = acquire.rotation.as_mut().zip(votes) else { return };
        match votes.round().outcome() {
            Some(Outcome::Denied) => {
                let free_at = votes.round().earliest_free().unwrap_or(Time::END);
                rotation.handle_free_at(free_at, now);
            }
            _ => rotation.handle_failure(),
        }
    }

    pub(super) fn new_claim(
        &self,
        terms: &Terms,
        candidates: Option<&Candidates>,
        now: Time,
    ) -> Arc<Claim> {
        let settings = &self.cx.settings;
        let (uuid, metadata) = (self.cx.random.uuid(), terms.metadata.as_deref());
        let (keys, locked) = match candidates {
            Some(candidates) => (&candidates.keys, 1),
            None => (&terms.keys, terms.keys.len()),
        };
        let holding = terms.permits.map_or(Holding::Keys(locked), |of| Holding::Permit { of });
        let value = Value::of_lease(uuid, settings.client, holding, metadata);
        let hint = || hint(self.highest_number, self.wall_us(now));
        let counters = terms.counters.as_ref().and_then(|counters| match candidates {
            Some(_) => counters.of_some(&terms.keys, keys).map(Arc::new),
            None => Some(counters.clone()),
        });
        let counters = counters.map(|counters| Counters::new(counters, hint()));
        let (nodes, late_from) = (settings.quorum.nodes(), now.after(settings.node_timeout / 2));
        let claim = Claim::new(keys.clone(), value, counters, nodes, late_from);
        Arc::new(match &terms.sharing {
            Some(SharingTerms { keys, is_reader }) => {
                claim.shared(keys.clone(), *is_reader, terms.reservation.clone())
            }
            None if candidates.is_some() => claim.of_any_key(),
            None => claim,
        })
    }
}

/// Returns the nodes that may have set another key than the chosen one, or none, although they have not refused. A node
/// whose vote does not count can have set any key.
fn may_lack_chosen_key(votes: &VoteCounter) -> NodeSet {
    let quorum = votes.round().quorum();
    let has_denied = |node| matches!(votes.refusal(node), Some(Answer::Denied(_)));
    let replied = quorum.ids().filter(|node| votes.has_replied(*node) && !has_denied(*node));
    let granted = votes.round().granted();
    votes.without_conflict().union(replied.collect()).without(granted)
}
