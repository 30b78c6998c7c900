//! Writes the events of a client as spans and log lines of the `tracing` crate.
//!
//! Problems that may need action are logged at warn level, and most other events at debug level. Each kind of warning
//! has a [rate limit](RateLimit), so that a persistent problem causes only a few lines per hour.

use super::event::{AcquireOutcome, Event, LockInfo, NodeHealth, ReleaseResult};
use super::event_level::EventLevel;
use super::observer::Observer;
use super::rate_limit::RateLimit;
use crate::protocol::Loss;
use crate::sync::{catch_panic, lock};
use crate::time::Clock;
use crate::wire::short;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::field::{Empty, display};
use tracing::level_filters::LevelFilter;
use tracing::{Level, Span, debug, debug_span, enabled, warn};

/// Number of a node's health changes that may be logged at warn level before the rate limit applies.
const NODE_BURST: u32 = 6;

pub(super) struct Spans {
    clock: Clock,
    /// Open spans. The `u64` is the identifier of the acquire, extension or release.
    open: Mutex<BTreeMap<(SpanKind, u64), Span>>,
    rate_limits: Mutex<BTreeMap<WarningKind, RateLimit>>,
    nodes: Mutex<BTreeMap<Arc<str>, RateLimit>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SpanKind {
    Acquire,
    Extend,
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WarningKind {
    ClockUnreadable,
    Failing,
    Lost,
    NoQuorum,
    Unconfirmed,
}

impl WarningKind {
    fn suppressed_text(self) -> &'static str {
        match self {
            Self::ClockUnreadable => "more connections without readable clock",
            Self::Failing => "more renewals failed",
            Self::Lost => "more leases were lost",
            Self::NoQuorum => "more acquires found no quorum",
            Self::Unconfirmed => "more releases were not confirmed",
        }
    }
}

/// Displays a node's previous health, for example `was down for 5.0s`.
struct Before(NodeHealth, Duration);

impl fmt::Display for Before {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(NodeHealth::Unknown, _) => f.write_str("was never connected"),
            Self(health, lasted) => write!(f, "was {health} for {}", short(*lasted)),
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

    /// Returns true if the `tracing` subscriber has enabled `level`. Returns false if the subscriber panics.
    pub(super) fn want(level: EventLevel) -> bool {
        let is_wanted = catch_panic(|| match level {
            EventLevel::Debug => enabled!(target: "quorlock", Level::DEBUG),
            EventLevel::Warn => enabled!(target: "quorlock", Level::WARN),
        });
        is_wanted.unwrap_or(false)
    }

    /// Returns false only if the subscriber has disabled `level`. Does not ask the subscriber, which may block.
    pub(super) fn may_want(level: EventLevel) -> bool {
        match level {
            EventLevel::Debug => LevelFilter::current() >= Level::DEBUG,
            EventLevel::Warn => LevelFilter::current() >= Level::WARN,
        }
    }

    fn begin(&self, kind: SpanKind, id: u64, span: Span) {
        if !span.is_disabled() {
            lock(&self.open).insert((kind, id), span);
        }
    }

    fn open_span(&self, kind: SpanKind, id: u64) -> Span {
        lock(&self.open).get(&(kind, id)).cloned().unwrap_or_else(Span::none)
    }

    fn end(&self, kind: SpanKind, id: u64) -> Span {
        let span = lock(&self.open).remove(&(kind, id));
        span.unwrap_or_else(Span::none)
    }

    /// Applies the rate limit to a warning of this `kind`. Returns `None` if the warning must be suppressed. Otherwise
    /// returns a suffix for the log line. If warnings were suppressed before this one, the suffix contains their
    /// number.
    ///
    /// Also writes a summary for each other kind of warning that has suppressed lines and whose pause has passed.
    fn rate_limited(&self, kind: WarningKind) -> Option<String> {
        let now = self.clock.now();
        let (others, due) = {
            let mut rate_limits = lock(&self.rate_limits);
            let limit = rate_limits.entry(kind).or_insert_with(|| RateLimit::new(1, now));
            let due = limit.handle(now);
            let others = rate_limits.iter_mut().filter(|(other, _)| **other != kind);
            let others = others.filter_map(|(other, limit)| Some((*other, limit.poll(now)?)));
            (others.collect::<Vec<_>>(), due)
        };
        for (other, (count, within, _)) in others {
            warn!(target: "quorlock", "{count} {} within {}", other.suppressed_text(), short(within));
        }
        let (count, within, since) = due?;
        if count == 0 {
            return Some(String::new());
        }
        let (within, since) = (short(within), short(since));
        Some(format!(
            " ({count} {} within {within}, the first {since} ago)",
            kind.suppressed_text()
        ))
    }
}

fn class(lock: &LockInfo) -> &'static str {
    lock.class.unwrap_or_default()
}

impl Observer for Spans {
    fn on_event(&self, event: &Event) {
        self.log_acquire(event);
        self.log_extension(event);
        self.log_end(event);
        self.log_node(event);
    }
}

impl Spans {
    fn log_acquire(&self, event: &Event) {
        match event {
            Event::AcquireStarted { lock, wait, is_adoption } => {
                let LockInfo { id, resources, .. } = lock;
                let (class, wait) = (class(lock), wait.map(short).unwrap_or_default());
                let span = debug_span!(
                    target: "quorlock", "acquire", %resources, class, id, wait,
                    is_adoption, outcome = Empty, waited = Empty, token = Empty,
                );
                debug!(target: "quorlock", parent: &span, "acquire of {resources} started");
                self.begin(SpanKind::Acquire, *id, span);
            }
            Event::AttemptFinished { lock, number, outcome, elapsed, report, confirmation } => {
                let span = self.open_span(SpanKind::Acquire, lock.id);
                let (took, confirmation) = (short(*elapsed), confirmation.as_ref().map(display));
                debug!(
                    target: "quorlock", parent: &span, took, confirmation,
                    "attempt {number} for {}: {outcome:?}: {report}", lock.resources,
                );
            }
            Event::AcquireFinished { lock, outcome, elapsed, validity, token, report } => {
                let LockInfo { id, resources, .. } = lock;
                let span = self.end(SpanKind::Acquire, *id);
                let (waited, votes) = (short(*elapsed), report.as_ref().map(display));
                span.record("outcome", outcome.as_str()).record("waited", &*waited);
                if let Some(token) = token {
                    span.record("token", display(token));
                }
                if *outcome == AcquireOutcome::Won {
                    let validity = short(*validity);
                    debug!(
                        target: "quorlock", parent: &span, votes,
                        "acquired {resources} after {waited}, valid for {validity}",
                    );
                } else if *outcome != AcquireOutcome::NoQuorum {
                    debug!(
                        target: "quorlock", parent: &span, votes,
                        "{resources} was not acquired: {outcome}, after {waited}",
                    );
                } else if let Some(more) = self.rate_limited(WarningKind::NoQuorum) {
                    warn!(
                        target: "quorlock", parent: &span, votes,
                        "no quorum: neither {resources} nor any other lock can be acquired{more}",
                    );
                }
            }
            _ => {}
        }
    }

    fn log_extension(&self, event: &Event) {
        match event {
            Event::ExtendStarted { lock, id, ttl } => {
                let LockInfo { resources, id: lease, .. } = lock;
                let (class, ttl) = (class(lock), short(*ttl));
                let span = debug_span!(
                    target: "quorlock", "extend", %resources, class, lease, id, ttl, outcome = Empty,
                );
                self.begin(SpanKind::Extend, *id, span);
            }
            Event::ExtendFinished { lock, id, outcome, elapsed, validity, report } => {
                let span = self.end(SpanKind::Extend, *id);
                let (validity, took) = (short(*validity), short(*elapsed));
                let votes = report.as_ref().map(display);
                span.record("outcome", outcome.as_str());
                debug!(
                    target: "quorlock", parent: &span, took, votes,
                    "extension of {}: {outcome}, valid for {validity}", lock.resources,
                );
            }
            Event::LeaseRenewed { lock, slack, validity, failures } => {
                let (slack, validity) = (short(*slack), short(*validity));
                debug!(
                    target: "quorlock", failures,
                    "{} was renewed with {slack} left, valid for {validity}", lock.resources,
                );
            }
            Event::RenewalFailed { lock, failures, remaining, held, report } => {
                let (resources, left) = (&lock.resources, short(*remaining));
                if *failures > 1 {
                    debug!(
                        target: "quorlock", failures,
                        "renewal of {resources} failed again, {left} until it is lost: {report}",
                    );
                } else if let Some(more) = self.rate_limited(WarningKind::Failing) {
                    warn!(
                        target: "quorlock", votes = %report,
                        "renewal of {resources} failed, {left} until it is lost; {held} resources held in total{more}",
                    );
                }
            }
            _ => {}
        }
    }

    fn log_end(&self, event: &Event) {
        match event {
            Event::LeaseLost { lock: LockInfo { resources, .. }, reason, held_for } => {
                let held_for = short(*held_for);
                if *reason == Loss::Closed {
                    debug!(target: "quorlock", "{resources} was released after {held_for}: {reason}");
                } else if let Some(more) = self.rate_limited(WarningKind::Lost) {
                    warn!(target: "quorlock", "{resources} was lost after {held_for}: {reason}{more}");
                }
            }
            Event::PermitsDiffer { lock: LockInfo { resources, .. }, permits, other_permits } => {
                warn!(
                    target: "quorlock",
                    "a holder uses {other_permits} permits, this acquire uses {permits} ({resources}): use the same \
                     number in all clients",
                );
            }
            Event::JobUndecided { lock: LockInfo { resources, .. }, report } => {
                debug!(target: "quorlock", "unknown whether a call has taken this period of the job {resources}: {report}");
            }
            Event::JobsDiffer { lock, takes_over, other_takes_over, period, other_period } => {
                warn!(
                    target: "quorlock",
                    takes_over, other_takes_over, ?period, ?other_period,
                    "another client runs the job {} with another period or take_over: use the same settings in all \
                     clients",
                    lock.resources,
                );
            }
            Event::ReleaseStarted { lock, held_for, .. } => {
                let LockInfo { id, resources, .. } = lock;
                let (class, held_for) = (class(lock), short(*held_for));
                let span = debug_span!(
                    target: "quorlock", "release", %resources, class, id, held_for, result = Empty,
                );
                self.begin(SpanKind::Release, *id, span);
            }
            Event::ReleaseFinished { lock, result, elapsed, report } => {
                let (span, resources) = (self.end(SpanKind::Release, lock.id), &lock.resources);
                let (took, votes) = (short(*elapsed), report.as_ref().map(display));
                span.record("result", result.as_str());
                if *result != ReleaseResult::NoQuorum {
                    debug!(target: "quorlock", parent: &span, took, votes, "release of {resources}: {result}");
                } else if let Some(more) = self.rate_limited(WarningKind::Unconfirmed) {
                    warn!(
                        target: "quorlock", parent: &span, took, votes,
                        "release of {resources} is not confirmed and continues in the background{more}",
                    );
                }
            }
            _ => {}
        }
    }

    fn log_node(&self, event: &Event) {
        match event {
            Event::NodeHealthChanged { node, from, to, reason, lasted, counted, nodes, needed } => {
                let (why, before) = (reason.as_ref().map(display), Before(*from, *lasted));
                if !self.is_warned(node, *from, *to) {
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
            Event::PendingReleasesChanged { node, pending, .. } => debug!(
                target: "quorlock", node = &**node, owed = pending, "{node} has {pending} pending releases",
            ),
            Event::ConnectionOpened { node, reads_clock, .. } => {
                debug!(target: "quorlock", "connected to {node}");
                if !reads_clock && let Some(more) = self.rate_limited(WarningKind::ClockUnreadable)
                {
                    warn!(
                        target: "quorlock",
                        "{node} does not permit TIME: steps of its clock cannot be detected; permit +time{more}",
                    );
                }
            }
            Event::ConnectionClosed { node, reason, .. } => {
                let why = reason.as_ref().map(display);
                debug!(target: "quorlock", why, "closed a connection to {node}");
            }
            Event::ConnectFailed { node, reason } => {
                debug!(target: "quorlock", why = %reason, "connection to {node} failed");
            }
            _ => {}
        }
    }

    /// Returns true if the change from `from` to `to` is logged at warn level. The change must affect whether the node
    /// is available, or whether its grants count towards the quorum. The node's rate limit must also permit a line. The
    /// first connection to a healthy node is never a warning.
    fn is_warned(&self, node: &Arc<str>, from: NodeHealth, to: NodeHealth) -> bool {
        let is_news =
            from.is_counted() != to.is_counted() || from.is_unavailable() != to.is_unavailable();
        if !is_news || from == NodeHealth::Unknown && to.is_counted() {
            return false;
        }
        let now = self.clock.now();
        let mut nodes = lock(&self.nodes);
        let limit = nodes.entry(node.clone()).or_insert_with(|| RateLimit::new(NODE_BURST, now));
        limit.handle(now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    struct PanickingSubscriber;

    impl Subscriber for PanickingSubscriber {
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
        tracing::subscriber::with_default(PanickingSubscriber, || {
            for level in [EventLevel::Debug, EventLevel::Warn] {
                assert!(!Spans::want(level));
            }
        });
    }
}
