//! The events that report the start and the end of an acquire.

use super::inner::Inner;
use crate::coordinator::AcquireRequest;
use crate::error::AcquireError;
use crate::lease::Lease;
use crate::observe::event::{AcquireOutcome, Event, LockInfo};
use crate::observe::{AcquireTag, EventLevel, Report};
use crate::protocol::Time;
use crate::wire::Keys;
use std::sync::Arc;
use std::time::Duration;

/// Emits the events for the start and the end of an acquire, even if the acquire is dropped.
pub(super) struct AcquireEvents {
    pub(super) client: Arc<Inner>,
    pub(super) keys: Keys,
    /// Whether the acquire needs only one of the keys.
    pub(super) is_any: bool,
    pub(super) tag: AcquireTag,
    /// Start of the acquire. `None` if no receiver wants events, or after the last event.
    started: Option<Time>,
}

impl AcquireEvents {
    pub(super) fn start(
        client: Arc<Inner>,
        request: &mut AcquireRequest,
        wait: Option<Duration>,
    ) -> Self {
        let observers = client.backing.pool.observers();
        let is_adoption = request.adopts.is_some();
        let mut started = None;
        if observers.wants(EventLevel::Warn) {
            request.tag.id = observers.next_id();
            started = Some(client.backing.clock().now());
        }
        let (keys, is_any, tag) = (request.keys.clone(), request.any_of.is_some(), request.tag);
        let watch = Self { client, keys, is_any, tag, started };
        if started.is_some() {
            let event = || Event::AcquireStarted { lock: watch.lock(), wait, is_adoption };
            watch.client.backing.pool.observers().emit(EventLevel::Debug, event);
        }
        watch
    }

    fn lock(&self) -> LockInfo {
        self.tag.lock(&self.keys, self.client.settings.prefix.len())
    }

    pub(super) fn finish(mut self, ended: &Result<Lease, AcquireError>) {
        match ended {
            Ok(lease) => self.emit(AcquireOutcome::Won, Some(lease), None),
            Err(error) => self.emit(outcome(error), None, error.report()),
        }
    }

    fn emit(&mut self, outcome: AcquireOutcome, lease: Option<&Lease>, report: Option<&Report>) {
        let Some(started) = self.started.take() else { return };
        let (observers, level) = (self.client.backing.pool.observers(), level(outcome));
        observers.emit(level, || Event::AcquireFinished {
            lock: self.lock(),
            outcome,
            elapsed: self.client.backing.clock().now().since(started),
            validity: lease.map_or(Duration::ZERO, |lease| lease.validity()),
            token: lease.and_then(|lease| lease.token()),
            report: lease.map(|lease| lease.report()).or_else(|| report.cloned()),
        });
    }
}

impl Drop for AcquireEvents {
    fn drop(&mut self) {
        self.emit(AcquireOutcome::Dropped, None, None);
    }
}

/// Contention is normal operation, so only a missing quorum or an internal error is reported as a warning.
fn level(outcome: AcquireOutcome) -> EventLevel {
    match outcome {
        AcquireOutcome::NoQuorum | AcquireOutcome::Internal => EventLevel::Warn,
        _ => EventLevel::Debug,
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
        AcquireError::Internal { .. } => AcquireOutcome::Internal,
        // Invalid settings are rejected before the start event, so this outcome is never reported for them.
        AcquireError::NoRuntime { .. } | AcquireError::Invalid(_) => AcquireOutcome::NoRuntime,
    }
}
