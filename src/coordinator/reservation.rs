//! Reservations of waiting readers and writers.
//!
//! A node that refuses a waiting writer or reader stores its reservation: the writer's intent, which makes new readers
//! wait, or the reader's request, which makes the next writer wait. The client releases it when the acquire ends without a
//! lease, or with the lease.

use super::claim::Claim;
use super::slots::{AcquireId, RoundId};
use super::state::Coordinator;
use crate::protocol::{NodeSet, Time};
use crate::wire::{Command, Keys, Value};
use std::sync::Arc;
use std::time::Duration;

/// For how long a writer leaves a free lock to a reader that waits, in addition to the time that the reader needs to
/// receive a push and to send a command. A client can be late by the precision of its timers, or because it is busy.
const SPARE: Duration = Duration::from_millis(20);

impl Coordinator {
    /// Creates the claim to the reservation of an acquire that waits for a lock with readers. A reader that needs more time
    /// than its reservation contains gets another one.
    pub(super) fn reserve(&mut self, id: AcquireId, now: Time) {
        let Some(acquire) = self.acquires.get(id) else { return };
        let terms = &acquire.terms;
        let waits = terms.deadline.is_some();
        let Some(sharing) = terms.sharing.as_ref().filter(|_| waits) else { return };
        let duration =
            if sharing.is_reader { self.time_to_react() } else { terms.ttl.as_duration() };
        let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let earlier = terms.reservation.clone();
        if earlier.as_ref().is_some_and(|it| it.value().reserved_ms() >= Some(ms)) {
            return;
        }
        let owner = Value::fresh(&self.cx.random);
        let (key, value) = sharing.keys.reservation(sharing.is_reader, ms, &owner);
        let claim = Claim::new(Keys::one(key), value, None, self.cx.settings.quorum.nodes(), now);
        if let Some(acquire) = self.acquires.get_mut(id) {
            acquire.terms.reservation = Some(Arc::new(claim.of_reservation()));
        }
        self.release_reservation(earlier.as_ref(), NodeSet::default(), now);
    }

    /// Returns the time from the release of a lock to the arrival of this client's acquire on a quorum.
    fn time_to_react(&self) -> Duration {
        let settings = &self.cx.settings;
        let connected = self.nodes.iter().filter(|node| node.is_connected());
        let mut round_trips: Vec<_> = connected.map(|node| node.round_trip).collect();
        round_trips.sort_unstable();
        round_trips.truncate(settings.quorum.needed());
        let longest = round_trips.last().copied().unwrap_or_default();
        // Twice, because round-trip times vary. Rounded up, so that small changes do not matter.
        let ms = 2 * longest.min(settings.node_timeout).as_millis();
        let ms = u64::try_from(ms).unwrap_or(u64::MAX).next_multiple_of(16);
        SPARE + Duration::from_millis(ms)
    }

    /// Deletes the reservation of a lease. The nodes that granted the acquire in `round` delete it with the lease's own
    /// commands.
    pub(super) fn end_reservation(&mut self, claim: &Claim, round: RoundId, now: Time) {
        let granted = self.rounds.get(round).map(|votes| votes.round().granted());
        self.release_reservation(claim.reservation(), granted.unwrap_or_default(), now);
    }

    /// Deletes a reservation on all nodes that may have stored it, except `others`.
    pub(super) fn release_reservation(
        &mut self,
        reservation: Option<&Arc<Claim>>,
        others: NodeSet,
        now: Time,
    ) {
        let Some(reservation) = reservation else { return };
        let all: NodeSet = self.cx.settings.quorum.ids().collect();
        let release = Command::Release { cooling: None };
        self.submit(all.without(others), reservation, release, None, now);
    }
}
