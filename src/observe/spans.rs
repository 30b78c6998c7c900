//! Events as spans and log lines of the `tracing` crate.
//!
//! All events are logged at debug level. Problems that may need action are logged at warn level, with a [rate
//! limit](RateLimit) for each kind: a persistent problem causes a few lines per hour.

use super::event::{
    AcquireBegun, AcquireEnded, AcquireOutcome, AttemptEnded, ExtendBegun, ExtendEnded, HandedOver,
    LeaseLost, ReleaseBegun, ReleaseEnded, ReleaseResult, RenewalFailing, Renewed,
};
use super::lock::Lock;
use super::node_event::{
    ConnectFailed, ConnectionClosed, ConnectionOpened, NodeChanged, NodeStanding, ReleasesOwed,
};
use super::observer::Observer;
use super::rate_limit::{RateLimit, Suppressed};
use super::told::Weight;
use crate::protocol::Loss;
use crate::sync::{contain, lock};
use crate::time::Clock;
use crate::wire::short;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;
use tracing::field::{Empty, display};
use tracing::{Level, Span, debug, debug_span, enabled, warn};

/// Number of changes of one node that are logged before the rate limit applies.
const NODE_BURST: u32 = 6;

/// Writes spans and lines.
pub(super) struct Spans {
    clock: Clock,
    /// Open spans, by operation and number.
    open: Mutex<BTreeMap<(Verb, u64), Span>>,
    rate_limits: Mutex<BTreeMap<Kind, RateLimit>>,
    nodes: Mutex<BTreeMap<Box<str>, RateLimit>>,
}

/// Operation of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verb {
    Acquire,
    Extend,
    Release,
}

/// Kind of line with its own rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    ClockUnreadable,
    Failing,
    Lost,
    NoQuorum,
    Unconfirmed,
}

impl Kind {
    /// Text for suppressed lines.
    fn more(self) -> &'static str {
        match self {
            Self::ClockUnreadable => "more connections without readable clock",
            Self::Failing => "more renewals failed",
            Self::Lost => "more leases were lost",
            Self::NoQuorum => "more acquires found no quorum",
            Self::Unconfirmed => "more releases were not confirmed",
        }
    }
}

/// Suffix of a line that follows suppressed ones.
struct AndMore(Kind, Suppressed);

impl fmt::Display for AndMore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(kind, Suppressed { count, within, since }) = self;
        if *count == 0 {
            return Ok(());
        }
        let (within, since) = (short(*within), short(*since));
        write!(f, " ({count} {} within {within}, the first {since} ago)", kind.more())
    }
}

/// Previous standing of a node, and its duration.
struct Before(NodeStanding, Duration);

impl fmt::Display for Before {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(NodeStanding::Unknown, _) => f.write_str("was never connected"),
            Self(standing, after) => write!(f, "was {standing} for {}", short(*after)),
        }
    }
}

impl Spans {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            open: Mutex::default(),
            rate_limits: Mutex::default(),
            nodes: Mutex::default(),
        }
    }

    /// True if a subscriber is interested in this level. False if it panics.
    pub(super) fn want(weight: Weight) -> bool {
        let is_wanted = contain(|| match weight {
            Weight::Detail => enabled!(target: "quorlock", Level::DEBUG),
            Weight::Trouble => enabled!(target: "quorlock", Level::WARN),
        });
        is_wanted.unwrap_or(false)
    }

    /// Stores an open span.
    fn begin(&self, verb: Verb, id: u64, span: Span) {
        if !span.is_disabled() {
            lock(&self.open).insert((verb, id), span);
        }
    }

    /// The open span, if any.
    fn of(&self, verb: Verb, id: u64) -> Span {
        lock(&self.open).get(&(verb, id)).cloned().unwrap_or_else(Span::none)
    }

    /// Removes and returns the open span.
    fn end(&self, verb: Verb, id: u64) -> Span {
        let span = lock(&self.open).remove(&(verb, id));
        span.unwrap_or_else(Span::none)
    }

    /// Applies the rate limit of `kind`. Returns the suffix if a line is to be written. Reports suppressed lines of
    /// other kinds if they are due.
    fn rate_limited(&self, kind: Kind) -> Option<AndMore> {
        let now = self.clock.now();
        let (others, told) = {
            let mut rate_limits = lock(&self.rate_limits);
            let told = rate_limits.entry(kind).or_insert_with(|| RateLimit::new(1)).handle(now);
            let others = rate_limits.iter_mut().filter(|(other, _)| **other != kind);
            let others =
                others.filter_map(|(other, rate_limit)| Some((*other, rate_limit.poll(now)?)));
            (others.collect::<Vec<_>>(), told)
        };
        for (other, Suppressed { count, within, .. }) in others {
            warn!(target: "quorlock", "{count} {} within {}", other.more(), short(within));
        }
        told.map(|suppressed| AndMore(kind, suppressed))
    }
}

/// The class, or an empty string.
fn class(lock: &Lock<'_>) -> &'static str {
    lock.class.unwrap_or_default()
}

impl Observer for Spans {
    fn acquire_begun(&self, event: &AcquireBegun<'_>) {
        let Lock { id, resources, .. } = event.lock;
        let (class, wait) = (class(&event.lock), event.wait.map(short).unwrap_or_default());
        let span = debug_span!(
            target: "quorlock", "acquire", %resources, class, id, wait,
            is_adoption = event.is_adoption, outcome = Empty, waited = Empty, token = Empty,
        );
        debug!(target: "quorlock", parent: &span, "acquire of {resources} started");
        self.begin(Verb::Acquire, id, span);
    }

    fn attempt_ended(&self, event: &AttemptEnded<'_>) {
        let span = self.of(Verb::Acquire, event.lock.id);
        let AttemptEnded { number, outcome, took, report, .. } = event;
        let took = short(*took);
        debug!(
            target: "quorlock", parent: &span, took,
            "attempt {number} for {}: {outcome:?}: {report}", event.lock.resources,
        );
    }

    fn acquire_ended(&self, event: &AcquireEnded<'_>) {
        let Lock { id, resources, .. } = event.lock;
        let span = self.end(Verb::Acquire, id);
        let AcquireEnded { outcome, waited, validity, token, report, .. } = event;
        let (waited, votes) = (short(*waited), report.map(display));
        span.record("outcome", outcome.as_str()).record("waited", &*waited);
        if let Some(token) = token {
            span.record("token", display(token));
        }
        match outcome {
            AcquireOutcome::Won => {
                let validity = short(*validity);
                debug!(
                    target: "quorlock", parent: &span, votes,
                    "acquired {resources} after {waited}, valid for {validity}",
                );
            }
            AcquireOutcome::NoQuorum => {
                if let Some(more) = self.rate_limited(Kind::NoQuorum) {
                    warn!(
                        target: "quorlock", parent: &span, votes,
                        "no quorum: neither {resources} nor any other lock can be acquired{more}",
                    );
                }
            }
            _ => debug!(
                target: "quorlock", parent: &span, votes,
                "{resources} was not acquired: {outcome}, after {waited}",
            ),
        }
    }

    fn handed_over(&self, event: &HandedOver<'_>) {
        let span = self.of(Verb::Acquire, event.lock.id);
        let resources = event.lock.resources;
        debug!(target: "quorlock", parent: &span, "{resources} was adopted by its value");
    }

    fn extend_begun(&self, event: &ExtendBegun<'_>) {
        let ExtendBegun { lock: Lock { resources, id: lease, .. }, id, ttl } = *event;
        let (class, ttl) = (class(&event.lock), short(ttl));
        let span = debug_span!(
            target: "quorlock", "extend", %resources, class, lease, id, ttl, outcome = Empty,
        );
        self.begin(Verb::Extend, id, span);
    }

    fn extend_ended(&self, event: &ExtendEnded<'_>) {
        let span = self.end(Verb::Extend, event.id);
        let ExtendEnded { outcome, validity, took, report, .. } = event;
        let (validity, took, votes) = (short(*validity), short(*took), report.map(display));
        let (outcome, resources) = (outcome.as_str(), event.lock.resources);
        span.record("outcome", outcome);
        debug!(
            target: "quorlock", parent: &span, took, votes,
            "extension of {resources}: {outcome}, valid for {validity}",
        );
    }

    fn renewed(&self, event: &Renewed<'_>) {
        let Renewed { lock: Lock { resources, .. }, slack, validity, failures } = *event;
        let (slack, validity) = (short(slack), short(validity));
        debug!(
            target: "quorlock", failures,
            "{resources} was renewed with {slack} left, valid for {validity}",
        );
    }

    fn renewal_failing(&self, event: &RenewalFailing<'_>) {
        let RenewalFailing { lock: Lock { resources, .. }, failures, left, held, report } = *event;
        let left = short(left);
        if failures > 1 {
            debug!(
                target: "quorlock", failures,
                "renewal of {resources} failed again, {left} until it is lost: {report}",
            );
        } else if let Some(more) = self.rate_limited(Kind::Failing) {
            warn!(
                target: "quorlock", votes = %report,
                "renewal of {resources} failed, {left} until it is lost; {held} resources held in total{more}",
            );
        }
    }

    fn lease_lost(&self, event: &LeaseLost<'_>) {
        let LeaseLost { lock: Lock { resources, .. }, reason, held_for } = *event;
        let held_for = short(held_for);
        if reason == Loss::Closed {
            debug!(target: "quorlock", "{resources} was released after {held_for}: {reason}");
        } else if let Some(more) = self.rate_limited(Kind::Lost) {
            warn!(target: "quorlock", "{resources} was lost after {held_for}: {reason}{more}");
        }
    }

    fn release_begun(&self, event: &ReleaseBegun<'_>) {
        let Lock { id, resources, .. } = event.lock;
        let (class, held_for) = (class(&event.lock), short(event.held_for));
        let span = debug_span!(
            target: "quorlock", "release", %resources, class, id, held_for, result = Empty,
        );
        self.begin(Verb::Release, id, span);
    }

    fn release_ended(&self, event: &ReleaseEnded<'_>) {
        let span = self.end(Verb::Release, event.lock.id);
        let ReleaseEnded { lock: Lock { resources, .. }, result, took, report } = *event;
        let (is_unconfirmed, votes) = (result == ReleaseResult::NoQuorum, report.map(display));
        let (result, took) = (result.as_str(), short(took));
        span.record("result", result);
        if !is_unconfirmed {
            debug!(target: "quorlock", parent: &span, took, votes, "release of {resources}: {result}");
        } else if let Some(more) = self.rate_limited(Kind::Unconfirmed) {
            warn!(
                target: "quorlock", parent: &span, took, votes,
                "release of {resources} is not confirmed and continues in the background{more}",
            );
        }
    }

    fn node_changed(&self, event: &NodeChanged<'_>) {
        let NodeChanged { node, from, to, reason, after, counted, nodes, needed } = *event;
        let why = reason.map(display);
        let is_news = from.is_counted() != to.is_counted() || from.is_away() != to.is_away();
        let is_first = from == NodeStanding::Unknown && to.is_counted();
        let is_told = is_news && !is_first && {
            let now = self.clock.now();
            let mut rate_limits = lock(&self.nodes);
            let rate_limit =
                rate_limits.entry(node.into()).or_insert_with(|| RateLimit::new(NODE_BURST));
            rate_limit.handle(now).is_some()
        };
        let before = Before(from, after);
        if !is_told {
            debug!(target: "quorlock", why, "{node} is {to}, {before}");
        } else if to.is_counted() {
            warn!(
                target: "quorlock",
                "{node} counts again, {before}; {counted} of {nodes} nodes count, need {needed}",
            );
        } else {
            warn!(
                target: "quorlock", why,
                "{node} is {to}, {before}; {counted} of {nodes} nodes count, need {needed}",
            );
        }
    }

    fn releases_owed(&self, event: &ReleasesOwed<'_>) {
        let ReleasesOwed { node, owed, .. } = event;
        debug!(target: "quorlock", node, owed, "{node} has {owed} pending releases");
    }

    fn connection_opened(&self, event: &ConnectionOpened<'_>) {
        let ConnectionOpened { node, reads_clock, .. } = *event;
        debug!(target: "quorlock", "connected to {node}");
        if !reads_clock && let Some(more) = self.rate_limited(Kind::ClockUnreadable) {
            warn!(
                target: "quorlock",
                "{node} does not permit TIME: steps of its clock cannot be detected; permit +time{more}",
            );
        }
    }

    fn connection_closed(&self, event: &ConnectionClosed<'_>) {
        let why = event.reason.map(display);
        debug!(target: "quorlock", why, "closed a connection to {}", event.node);
    }

    fn connect_failed(&self, event: &ConnectFailed<'_>) {
        let ConnectFailed { node, reason } = event;
        debug!(target: "quorlock", why = %reason, "connection to {node} failed");
    }

    /// Called if a subscriber panics.
    fn panicked(&self, _: &'static str) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    /// A subscriber that panics.
    struct Nervous;

    impl Subscriber for Nervous {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            panic!("panicking subscriber");
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn panicking_subscriber_is_not_interested() {
        tracing::subscriber::with_default(Nervous, || {
            for weight in [Weight::Detail, Weight::Trouble] {
                assert!(!Spans::want(weight));
            }
        });
    }
}
