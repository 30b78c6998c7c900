//! Acquires of one of several resources.
//!
//! Each attempt carries some of the keys, in [rotation](super::rotation::Rotation). A node sets the first of them that
//! is free. A quorum must have set the same key; the keys that other nodes have set are released.

use super::acquire::{Attempt, Stage, Terms};
use super::claim::Claim;
use super::rotation::Candidates;
use super::slots::AcquireId;
use super::stages::Step;
use super::state::Coordinator;
use crate::observe::event::AttemptOutcome;
use crate::protocol::{NodeSet, Time, Ttl, hint};
use crate::wire::{Command, Counters, Value};
use std::sync::Arc;

impl Coordinator {
    /// Returns the keys for the next attempt of an acquire of any one of several keys.
    pub(super) fn take_candidates(&mut self, id: AcquireId, now: Time) -> Option<Candidates> {
        let rotation = self.acquires.get_mut(id)?.rotation.as_mut()?;
        if !rotation.has_untried() {
            let freed = self.queues.take_freed_key(id);
            rotation.restart(freed.as_deref(), now, self.cx.random.number());
        }
        Some(rotation.take_candidates())
    }

    /// After a quorum has set the same key, reduces the attempt's claim to that key. Releases the other keys on the
    /// nodes that may have set them.
    pub(super) fn choose_key(&mut self, id: AcquireId, now: Time) {
        let Some(acquire) = self.acquires.get_mut(id) else { return };
        let Some(attempt) = acquire.attempt_mut().filter(|it| it.claim.is_any()) else { return };
        let Some(votes) = self.rounds.get(attempt.round) else { return };
        let Some(place) = votes.chosen_key() else { return };
        let Some((chosen, others)) = attempt.claim.split(place, votes.round().granted()) else {
            return;
        };
        attempt.claim.withdraw();
        attempt.claim = Arc::new(chosen);
        if let Some(others) = others {
            self.release_claim(&Arc::new(others), None, None, now);
        }
    }

    /// Sets the chosen key of a new lease on the nodes that have not granted it: they may set another key, which the
    /// client has just released, or no key, because the acquire command was not written to them.
    pub(super) fn set_chosen_key(&mut self, attempt: &Attempt, ttl: Ttl, now: Time) {
        let Some(votes) = self.rounds.get(attempt.round) else { return };
        let all: NodeSet = self.cx.settings.quorum.ids().collect();
        let (nodes, until) =
            (all.without(votes.round().granted()), attempt.t1.after(ttl.as_duration()));
        self.submit(nodes, &attempt.claim, Command::Repair { until }, None, now);
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
        self.end_refused(id, now);
        self.enter_stage(id, Stage::Queued)
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
        let value = Value::of_lease(uuid, settings.client, locked, metadata);
        let hint = || hint(self.highest_number, self.wall_us(now));
        let counters = terms.counters.as_ref().and_then(|counters| match candidates {
            Some(_) => counters.of_some(&terms.keys, keys).map(Arc::new),
            None => Some(counters.clone()),
        });
        let counters = counters.map(|counters| Counters::new(counters, hint()));
        let (nodes, late_from) = (settings.quorum.nodes(), now.after(settings.node_timeout / 2));
        let claim = Claim::new(keys.clone(), value, counters, nodes, late_from);
        Arc::new(if candidates.is_some() { claim.of_any_key() } else { claim })
    }
}
