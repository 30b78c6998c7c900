//! What is counted of locks, by their class.

use super::families::{self, Counters};
use crate::observe::event::{AcquireOutcome, ExtendOutcome, ReleaseResult};
use crate::protocol::Loss;
use metrics::{Gauge, Histogram, Label, Recorder, with_recorder};
use std::sync::OnceLock;

/// So many classes are told apart; those that come later are one.
const MAX_CLASSES: usize = 100;

/// Locks without a class, and those of one class too many.
const NONE: &str = "none";
const OTHER: &str = "other";

/// The handles of all classes. Reading them waits for nobody.
pub(super) struct Classes {
    none: Class,
    /// Filled from the front.
    known: [OnceLock<(&'static str, Class)>; MAX_CLASSES],
    other: OnceLock<Class>,
}

/// The handles of one class.
pub(super) struct Class {
    pub(super) acquires: Counters<AcquireOutcome>,
    pub(super) wait_of_won: Histogram,
    pub(super) wait_of_failed: Histogram,
    pub(super) waiters: Gauge,
    pub(super) held: Gauge,
    pub(super) hold: Histogram,
    pub(super) losses: Counters<Loss>,
    pub(super) extends: Counters<ExtendOutcome>,
    /// By whether they came through.
    pub(super) renewals: Counters<bool>,
    pub(super) slack: Histogram,
    pub(super) releases: Counters<ReleaseResult>,
}

impl Classes {
    pub(super) fn new(recorder: &dyn Recorder) -> Self {
        let known = [const { OnceLock::new() }; MAX_CLASSES];
        Self { none: Class::new(recorder, NONE), known, other: OnceLock::new() }
    }

    /// The handles of `class`; made when it is seen first.
    pub(super) fn of(&self, class: Option<&'static str>) -> &Class {
        let Some(class) = class else { return &self.none };
        let made = |class| with_recorder(|recorder| Class::new(recorder, class));
        for slot in &self.known {
            let known = match slot.get() {
                Some(known) => known,
                None => {
                    // A recorder may take its time. If another thread is sooner, it has made the same.
                    let _ = slot.set((class, made(class)));
                    let Some(known) = slot.get() else { continue };
                    known
                }
            };
            if known.0 == class {
                return &known.1;
            }
        }
        self.other.get_or_init(|| made(OTHER))
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
        let outcomes = AcquireOutcome::ALL.map(|it| (it, it.as_str()));
        let extends = ExtendOutcome::ALL.map(|it| (it, it.as_str()));
        let releases = ReleaseResult::ALL.map(|it| (it, it.as_str()));
        let losses = Loss::ALL.map(|it| (it, it.as_str()));
        let renewals = [(true, "renewed"), (false, "failed")];
        Self {
            acquires: families::ACQUIRES.counters(recorder, &class, "outcome", &outcomes),
            wait_of_won: wait("true"),
            wait_of_failed: wait("false"),
            waiters: gauge(families::WAITERS),
            held: gauge(families::LEASES_HELD),
            hold: histogram(families::HOLD),
            losses: families::LEASES_LOST.counters(recorder, &class, "reason", &losses),
            extends: families::EXTENDS.counters(recorder, &class, "outcome", &extends),
            renewals: families::RENEWALS.counters(recorder, &class, "result", &renewals),
            slack: histogram(families::RENEWAL_SLACK),
            releases: families::RELEASES.counters(recorder, &class, "result", &releases),
        }
    }
}
