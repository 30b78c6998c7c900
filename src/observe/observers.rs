//! Delivery of a client's events to the user's observer, `tracing` and metrics.

use super::event::Event;
use super::event_level::EventLevel;
#[cfg(feature = "metrics")]
use super::metrics::Metrics;
use super::observer::Observer;
#[cfg(feature = "tracing")]
use super::spans::Spans;
use crate::sync::catch_panic;
use crate::time::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// All receivers of a client's events: the user's observer, `tracing` and metrics. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Observers(Arc<Inner>);

struct Inner {
    receivers: Vec<Receiver>,
    last_id: AtomicU64,
}

struct Receiver {
    observer: Arc<dyn Observer>,
    wants: fn(EventLevel) -> bool,
    /// Set after `observer` has panicked. A disabled observer receives no events.
    is_disabled: AtomicBool,
}

impl Observers {
    /// Creates the receivers of a client. Metrics are recorded only if a `metrics` recorder has been installed before
    /// this call.
    pub(crate) fn new(
        observer: Option<Arc<dyn Observer>>,
        nodes: &[Arc<str>],
        clock: &Clock,
    ) -> Self {
        #[cfg(not(feature = "tracing"))]
        let _ = clock;
        #[cfg(not(feature = "metrics"))]
        let _ = nodes;
        let mut receivers = Vec::new();
        #[cfg(feature = "tracing")]
        receivers.push(Receiver::new(Arc::new(Spans::new(clock.clone())), Spans::want));
        #[cfg(feature = "metrics")]
        receivers.extend(Metrics::new(nodes).map(|it| Receiver::new(Arc::new(it), |_| true)));
        receivers.extend(observer.map(|it| Receiver::new(it, |_| true)));
        Self(Arc::new(Inner { receivers, last_id: AtomicU64::new(0) }))
    }

    pub(crate) fn wants(&self, level: EventLevel) -> bool {
        self.0.receivers.iter().any(|receiver| receiver.is_enabled() && (receiver.wants)(level))
    }

    /// Calls `event` to build an event, and delivers it to every receiver that wants events of `level`. If no receiver
    /// wants the event, `event` is not called. The caller must not hold a mutex, because receivers may call methods of
    /// the client.
    pub(crate) fn emit(&self, level: EventLevel, event: impl FnOnce() -> Event) {
        if !self.wants(level) {
            return;
        }
        let event = event();
        for receiver in &self.0.receivers {
            if (receiver.wants)(level) {
                receiver.deliver(&event);
            }
        }
    }

    /// Returns a nonzero number that is unique among this client's acquires and extensions.
    pub(crate) fn next_id(&self) -> u64 {
        self.0.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Creates receivers without a user's observer, for tests.
impl Default for Observers {
    fn default() -> Self {
        Self::new(None, &[], &Clock::default())
    }
}

impl Receiver {
    fn new(observer: Arc<dyn Observer>, wants: fn(EventLevel) -> bool) -> Self {
        Self { observer, wants, is_disabled: AtomicBool::new(false) }
    }

    fn is_enabled(&self) -> bool {
        !self.is_disabled.load(Ordering::Relaxed)
    }

    fn deliver(&self, event: &Event) {
        if self.is_enabled()
            && catch_panic(|| self.observer.on_event(event)).is_none()
            && !self.is_disabled.swap(true, Ordering::Relaxed)
        {
            let event = Arc::new(event.clone());
            catch_panic(|| self.observer.on_event(&Event::ObserverPanicked { event }));
        }
    }
}
