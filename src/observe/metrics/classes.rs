//! Metrics per class of locks.

use super::families::{self, Counters};
use crate::observe::event::{AcquireOutcome, ExtendOutcome, ReleaseResult};
use crate::protocol::Loss;
use crate::sync::lock;
use metrics::{Gauge, Histogram, Label, Recorder, with_recorder};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Maximum number of classes with their own label. Further classes share the label [`OTHER`].
const MAX_CLASSES: usize = 100;

const NONE: &str = "none";
const OTHER: &str = "other";

pub(super) struct Classes(Mutex<BTreeMap<&'static str, Arc<Class>>>);

pub(super) struct Class {
    pub(super) acquires: Counters<AcquireOutcome>,
    pub(super) wait_of_won: Histogram,
    pub(super) wait_of_failed: Histogram,
    pub(super) waiters: Gauge,
    pub(super) held: Gauge,
    pub(super) hold: Histogram,
    pub(super) losses: Counters<Loss>,
    pub(super) extends: Counters<ExtendOutcome>,
    /// Keyed by whether the renewal succeeded.
    pub(super) renewals: Counters<bool>,
    pub(super) slack: Histogram,
    pub(super) releases: Counters<ReleaseResult>,
}

impl Classes {
    pub(super) fn new(recorder: &dyn Recorder) -> Self {
        Self(Mutex::new([(NONE, Arc::new(Class::new(recorder, NONE)))].into()))
    }

    pub(super) fn of(&self, class: Option<&'static str>) -> Arc<Class> {
        let mut known = lock(&self.0);
        let class = class.unwrap_or(NONE);
        let is_room = known.len() <= MAX_CLASSES || known.contains_key(class);
        let class = if is_room { class } else { OTHER };
        let made = || Arc::new(with_recorder(|it| Class::new(it, class)));
        known.entry(class).or_insert_with(made).clone()
    }
}

impl Class {
    fn new(recorder: &dyn Recorder, class: &'static str) -> Self {
        let class = [Label::from_static_parts("class", class)];
        let gauge = |family: families::Family| family.gauge(recorder, &class);
        let histogram = |family: families::Family| family.histogram(recorder, &class);
        let wait = |won| {
            let labels = [class.as_slice(), &[Label::from_static_parts("won", won)]].concat();
            families::ACQUIRE_WAIT.histogram(recorder, &labels)
        };
        let losses = Loss::ALL.map(|it| (it, it.as_str()));
        let renewals = [(true, "renewed"), (false, "failed")];
        Self {
            acquires: families::ACQUIRES.counters(
                recorder,
                &class,
                "outcome",
                AcquireOutcome::LABELS,
            ),
            wait_of_won: wait("true"),
            wait_of_failed: wait("false"),
            waiters: gauge(families::WAITERS),
            held: gauge(families::LEASES_HELD),
            hold: histogram(families::HOLD),
            losses: families::LEASES_LOST.counters(recorder, &class, "reason", &losses),
            extends: families::EXTENDS.counters(recorder, &class, "outcome", ExtendOutcome::LABELS),
            renewals: families::RENEWALS.counters(recorder, &class, "result", &renewals),
            slack: histogram(families::RENEWAL_SLACK),
            releases: families::RELEASES.counters(
                recorder,
                &class,
                "result",
                ReleaseResult::LABELS,
            ),
        }
    }

    pub(super) fn record_end(&self, held_for: Duration) {
        self.held.decrement(1.0);
        self.hold.record(held_for.as_secs_f64());
    }
}
