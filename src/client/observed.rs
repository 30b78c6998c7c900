//! Events of an acquire.

use super::inner::Inner;
use crate::acquire::AcquireRequest;
use crate::error::AcquireError;
use crate::lease::Lease;
use crate::observe::{AcquireBegun, AcquireEnded, AcquireOutcome, HandedOver, Lock, Tag, Weight};
use crate::protocol::Time;
use crate::wire::Keys;
use std::time::Duration;

/// Emits the events for the start and the end of an acquire, also if the acquire is dropped.
pub(super) struct AcquireWatch<'a> {
    client: &'a Inner,
    keys: &'a Keys,
    tag: Tag,
    is_adoption: bool,
    /// `None` if the end needs no event, or its event was emitted.
    begun: Option<Time>,
}

impl<'a> AcquireWatch<'a> {
    /// Gives the request's tag an ID if a receiver wants events, and emits the start event if its level is wanted.
    pub(super) fn begin(
        client: &'a Inner,
        request: &mut AcquireRequest,
        keys: &'a Keys,
        wait: Option<Duration>,
    ) -> Self {
        let observers = client.backing.pool.observers();
        let is_adoption = request.adopts.is_some();
        let mut begun = None;
        if observers.wants(Weight::Trouble) {
            request.tag.id = observers.next_id();
            begun = Some(client.backing.clock().now());
        }
        let watch = Self { client, keys, tag: request.tag, is_adoption, begun };
        if begun.is_some() && observers.wants(Weight::Detail) {
            let event = AcquireBegun { lock: watch.lock(), wait, is_adoption };
            observers.tell(Weight::Detail, &event);
        }
        watch
    }

    fn lock(&self) -> Lock<'a> {
        self.tag.lock(self.keys, self.client.settings.prefix.len())
    }

    pub(super) fn end(mut self, ended: &Result<Lease, AcquireError>) {
        let outcome = match ended {
            Ok(_) => AcquireOutcome::Won,
            Err(error) => outcome(error),
        };
        let lease = ended.as_ref().ok();
        let report = ended.as_ref().err().and_then(AcquireError::report);
        let observers = self.client.backing.pool.observers();
        let weight = weight(outcome);
        let Some(begun) = self.begun.take().filter(|_| observers.wants(weight)) else { return };
        // An acquired lease creates its report on request, so request it only for an event.
        let won = lease.map(|lease| lease.report());
        let event = AcquireEnded {
            lock: self.lock(),
            outcome,
            waited: self.client.backing.clock().now().since(begun),
            validity: lease.map_or(Duration::ZERO, |lease| lease.validity()),
            token: lease.and_then(|lease| lease.token()),
            report: won.as_ref().or(report),
        };
        if self.is_adoption && lease.is_some() {
            observers.tell(weight, &HandedOver { lock: self.lock() });
        }
        observers.tell(weight, &event);
    }
}

impl Drop for AcquireWatch<'_> {
    fn drop(&mut self) {
        let observers = self.client.backing.pool.observers();
        let weight = weight(AcquireOutcome::Dropped);
        let Some(begun) = self.begun.take().filter(|_| observers.wants(weight)) else { return };
        let event = AcquireEnded {
            lock: self.lock(),
            outcome: AcquireOutcome::Dropped,
            waited: self.client.backing.clock().now().since(begun),
            validity: Duration::ZERO,
            token: None,
            report: None,
        };
        observers.tell(weight, &event);
    }
}

/// Only a missing quorum is a warning: contention is normal operation.
fn weight(outcome: AcquireOutcome) -> Weight {
    match outcome {
        AcquireOutcome::NoQuorum => Weight::Trouble,
        _ => Weight::Detail,
    }
}

fn outcome(error: &AcquireError) -> AcquireOutcome {
    match error {
        AcquireError::Contended { .. } => AcquireOutcome::Contended,
        AcquireError::NotHeld { .. } => AcquireOutcome::NotHeld,
        AcquireError::NoQuorum { .. } => AcquireOutcome::NoQuorum,
        AcquireError::Expired { .. } => AcquireOutcome::Expired,
        AcquireError::Timeout { .. } => AcquireOutcome::Timeout,
        AcquireError::NotPolled { .. } => AcquireOutcome::NotPolled,
        AcquireError::Overloaded { .. } => AcquireOutcome::Overloaded,
        AcquireError::Closed => AcquireOutcome::Closed,
        // Settings are validated before the start event.
        AcquireError::NoRuntime
        | AcquireError::IncompleteRuntime { .. }
        | AcquireError::Invalid(_) => AcquireOutcome::NoRuntime,
    }
}
