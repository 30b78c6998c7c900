//! The handle by which a client tells what happens.

#[cfg(feature = "metrics")]
use super::metrics::Metrics;
use super::node_event::NodeStanding;
use super::observer::Observer;
use super::roll::{Change, Roll};
#[cfg(feature = "tracing")]
use super::spans::Spans;
use super::told::Told;
use crate::protocol::{NodeId, Quorum, Time};
use crate::sync::{contain, lock};
use crate::time::Clock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Who is told what happens to a client: the observer that it was given, and whoever subscribes to its lines.
/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Observers(Arc<Inner>);

struct Inner {
    /// Who was given by the user.
    observer: Option<Ear<Arc<dyn Observer>>>,
    #[cfg(feature = "tracing")]
    spans: Ear<Spans>,
    /// `None` if there was no recorder when the client was built.
    #[cfg(feature = "metrics")]
    metrics: Option<Ear<Metrics>>,
    /// The number of the last acquire or extension.
    last_id: AtomicU64,
    /// How the nodes stand, as was told.
    roll: Mutex<Roll>,
}

/// One who is told, until a panic.
struct Ear<O> {
    observer: O,
    is_deaf: AtomicBool,
}

/// How much an event matters: who subscribes to little is not told everything, and what would be told is
/// not put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// It is as it should be, or is part of something greater.
    Detail,
    /// Somebody may have to see to it.
    Trouble,
}

impl Observers {
    /// Nobody but `observer`, those who subscribe and the recorder that is installed now, for a client of these
    /// nodes with this clock.
    pub(crate) fn new(
        observer: Option<Arc<dyn Observer>>,
        nodes: &[Arc<str>],
        quorum: Quorum,
        clock: &Clock,
    ) -> Self {
        #[cfg(not(feature = "tracing"))]
        let _ = clock;
        #[cfg(not(feature = "metrics"))]
        let _ = nodes;
        Self(Arc::new(Inner {
            observer: observer.map(Ear::new),
            #[cfg(feature = "tracing")]
            spans: Ear::new(Spans::new(clock.clone())),
            #[cfg(feature = "metrics")]
            metrics: Metrics::new(nodes).map(Ear::new),
            last_id: AtomicU64::new(0),
            roll: Mutex::new(Roll::new(quorum)),
        }))
    }

    /// True if anybody is to be told an event of this `weight`. Else it is not worth while to put it together.
    pub(crate) fn wants(&self, weight: Weight) -> bool {
        #[cfg(feature = "tracing")]
        if Spans::want(weight) && self.0.spans.hears() {
            return true;
        }
        #[cfg(feature = "metrics")]
        if self.0.metrics.as_ref().is_some_and(Ear::hears) {
            return true;
        }
        let _ = weight;
        self.0.observer.as_ref().is_some_and(Ear::hears)
    }

    /// Tells `event`. No lock is held by the caller.
    pub(crate) fn tell<T: Told>(&self, weight: Weight, event: &T) {
        #[cfg(feature = "tracing")]
        if Spans::want(weight) {
            self.0.spans.tell(event);
        }
        #[cfg(feature = "metrics")]
        if let Some(metrics) = &self.0.metrics {
            metrics.tell(event);
        }
        let _ = weight;
        if let Some(observer) = &self.0.observer {
            observer.tell(event);
        }
    }

    /// A number that no other acquire or extension of this client has; never 0.
    pub(crate) fn next_id(&self) -> u64 {
        self.0.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// `node` stands so since `now`. What that changes, if it was not told before.
    pub(crate) fn handle_standing(
        &self,
        node: NodeId,
        standing: NodeStanding,
        now: Time,
    ) -> Option<Change> {
        lock(&self.0.roll).handle(node, standing, now)
    }
}

/// Nobody but those who subscribe.
impl Default for Observers {
    fn default() -> Self {
        Self::new(None, &[], Quorum::majority(1), &Clock::default())
    }
}

impl<O: AsObserver> Ear<O> {
    fn new(observer: O) -> Self {
        Self { observer, is_deaf: AtomicBool::new(false) }
    }

    fn hears(&self) -> bool {
        !self.is_deaf.load(Ordering::Relaxed)
    }

    fn tell<T: Told>(&self, event: &T) {
        if !self.hears() {
            return;
        }
        let observer = self.observer.as_observer();
        if contain(|| event.tell(observer)).is_none() && !self.is_deaf.swap(true, Ordering::Relaxed)
        {
            contain(|| observer.panicked(T::METHOD));
        }
    }
}

/// Somebody who can be told.
trait AsObserver {
    fn as_observer(&self) -> &dyn Observer;
}

impl AsObserver for Arc<dyn Observer> {
    fn as_observer(&self) -> &dyn Observer {
        &**self
    }
}

#[cfg(feature = "metrics")]
impl AsObserver for Metrics {
    fn as_observer(&self) -> &dyn Observer {
        self
    }
}

#[cfg(feature = "tracing")]
impl AsObserver for Spans {
    fn as_observer(&self) -> &dyn Observer {
        self
    }
}
