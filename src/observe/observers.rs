//! Delivery of a client's events to the user's observer, `tracing` and metrics.

use super::event::Event;
use super::event_level::EventLevel;
#[cfg(feature = "metrics")]
use super::metrics::Metrics;
use super::observer::Observer;
#[cfg(feature = "tracing")]
use super::spans::Spans;
use crate::sync::{catch_panic, threads};
use crate::time::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// All receivers of a client's events: the user's observer, `tracing` and metrics. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Observers(Arc<Inner>);

struct Inner {
    receivers: Vec<Receiver>,
    /// Whether a receiver wanted debug events when it was last asked.
    wants_debug: AtomicBool,
    last_id: AtomicU64,
}

struct Receiver {
    observer: Arc<dyn Observer>,
    wants: fn(EventLevel) -> bool,
    /// Returns false only if `wants` does. Runs no code of the program.
    may_want: fn(EventLevel) -> bool,
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
        receivers.push(Receiver {
            wants: Spans::want,
            may_want: Spans::may_want,
            ..Receiver::new(Arc::new(Spans::new(clock.clone())))
        });
        #[cfg(feature = "metrics")]
        receivers.extend(Metrics::new(nodes).map(|it| Receiver::new(Arc::new(it))));
        receivers.extend(observer.map(Receiver::new));
        Self(Arc::new(Inner {
            receivers,
            wants_debug: AtomicBool::new(false),
            last_id: AtomicU64::new(0),
        }))
    }

    /// Returns the most detailed level of the events to build, or `None` if no receiver wants any. Runs no code of the
    /// program, so the caller may hold a mutex. A receiver that no longer wants the events does not get them, see
    /// [`emit`](Self::emit).
    pub(crate) fn level(&self) -> Option<EventLevel> {
        let may_want = |level| {
            self.0
                .receivers
                .iter()
                .any(|receiver| receiver.is_enabled() && (receiver.may_want)(level))
        };
        if self.0.wants_debug.load(Ordering::Relaxed) && may_want(EventLevel::Debug) {
            return Some(EventLevel::Debug);
        }
        may_want(EventLevel::Warn).then_some(EventLevel::Warn)
    }

    /// Asks the receivers whether they want debug events, for [`level`](Self::level). A `tracing` subscriber may block,
    /// so the caller must not hold a mutex. Returns immediately on a thread that serves all
    /// clients.
    pub(crate) fn refresh(&self) {
        if threads::is_shared() {
            return;
        }
        let wants_debug = self.wants(EventLevel::Debug);
        if self.0.wants_debug.load(Ordering::Relaxed) != wants_debug {
            self.0.wants_debug.store(wants_debug, Ordering::Relaxed);
        }
    }

    /// Asks the receivers whether they want events of `level`. A `tracing` subscriber may block, so the caller must not
    /// hold a mutex.
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
    /// Creates a receiver that wants all events.
    fn new(observer: Arc<dyn Observer>) -> Self {
        Self { observer, wants: |_| true, may_want: |_| true, is_disabled: AtomicBool::new(false) }
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
