//! Metrics of nodes.

use super::families::{self, Counters};
use crate::observe::node_event::{
    Asked, ConnectionClosed, NodeAnswer, NodeAnswered, NodeChanged, NodeStanding, ReleasesOwed,
};
use crate::wire::NodeFailure;
use metrics::{Counter, Gauge, Histogram, Label, Recorder};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Values of the label `reason` of closed connections.
const DISCONNECTED: &str = "disconnected";
const STALLED: &str = "stalled";
const SHUT_DOWN: &str = "shut_down";
const CLOSED: &str = "closed";

/// Metric handles of one node of one client. Gauges are changed by differences, so that several clients of a process
/// add up.
pub(super) struct Node {
    pub(super) name: Arc<str>,
    /// By reply and kind of command.
    granted: Counters<Asked>,
    held: Counters<Asked>,
    missing: Counters<Asked>,
    failed: Counters<Asked>,
    round_trip: Histogram,
    counted: Gauge,
    clients: Gauge,
    owed: Gauge,
    pub(super) connections: Gauge,
    pub(super) opened: Counter,
    closed: Counters<&'static str>,
    pub(super) connect_failures: Counter,
    /// This client's contribution to the gauges, which is subtracted when it ends.
    is_known: AtomicBool,
    is_counted: AtomicUsize,
    owes: AtomicUsize,
}

impl Node {
    pub(super) fn new(recorder: &dyn Recorder, name: Arc<str>) -> Self {
        let node = [Label::new("node", name.to_string())];
        let gauge = |family: families::Family| family.gauge(recorder, &node);
        let counter = |family: families::Family| family.counter(recorder, &node);
        let asked = Asked::ALL.map(|it| (it, it.as_str()));
        let votes = |answer: &'static str| {
            let labels = [node.as_slice(), &[Label::from_static_parts("vote", answer)]].concat();
            families::VOTES.counters(recorder, &labels, "asked", &asked)
        };
        let reasons = [DISCONNECTED, STALLED, SHUT_DOWN, CLOSED].map(|reason| (reason, reason));
        Self {
            granted: votes(NodeAnswer::Granted.as_str()),
            held: votes(NodeAnswer::Held.as_str()),
            missing: votes(NodeAnswer::Missing.as_str()),
            failed: votes(NodeAnswer::Failed(&NodeFailure::ShutDown).as_str()),
            round_trip: families::ROUND_TRIP.histogram(recorder, &node),
            counted: gauge(families::NODE_COUNTED),
            clients: gauge(families::NODE_CLIENTS),
            owed: gauge(families::RELEASES_OWED),
            connections: gauge(families::CONNECTIONS),
            opened: counter(families::CONNECTIONS_OPENED),
            closed: families::CONNECTIONS_CLOSED.counters(recorder, &node, "reason", &reasons),
            connect_failures: counter(families::CONNECT_FAILURES),
            name,
            is_known: AtomicBool::new(false),
            is_counted: AtomicUsize::new(0),
            owes: AtomicUsize::new(0),
        }
    }

    pub(super) fn handle_answer(&self, event: &NodeAnswered<'_>) {
        let votes = match event.answer {
            NodeAnswer::Granted => &self.granted,
            NodeAnswer::Held => &self.held,
            NodeAnswer::Missing => &self.missing,
            NodeAnswer::Failed(_) => &self.failed,
        };
        votes.count(&event.asked);
        if let Some(round_trip) = event.round_trip {
            self.round_trip.record(round_trip.as_secs_f64());
        }
    }

    pub(super) fn handle_change(&self, event: &NodeChanged<'_>) {
        if event.from == NodeStanding::Unknown && !self.is_known.swap(true, Ordering::Relaxed) {
            self.clients.increment(1.0);
        }
        let is_counted = |standing: NodeStanding| usize::from(standing.is_counted());
        change(&self.counted, &self.is_counted, is_counted(event.from), is_counted(event.to));
    }

    pub(super) fn handle_owed(&self, event: &ReleasesOwed<'_>) {
        change(&self.owed, &self.owes, event.before, event.owed);
    }

    pub(super) fn handle_closed(&self, event: &ConnectionClosed<'_>) {
        self.connections.decrement(1.0);
        self.closed.count(&match event.reason {
            None => CLOSED,
            Some(NodeFailure::ShutDown) => SHUT_DOWN,
            Some(NodeFailure::Stalled(_)) => STALLED,
            Some(_) => DISCONNECTED,
        });
    }

    /// Subtracts this client's contributions.
    pub(super) fn end(&self) {
        if self.is_known.swap(false, Ordering::Relaxed) {
            self.clients.decrement(1.0);
        }
        change(&self.counted, &self.is_counted, self.is_counted.load(Ordering::Relaxed), 0);
        change(&self.owed, &self.owes, self.owes.load(Ordering::Relaxed), 0);
    }
}

/// Changes `gauge` and `sum` by the difference. Events of several threads may arrive in any order; the sum is correct
/// in the end.
fn change(gauge: &Gauge, sum: &AtomicUsize, from: usize, to: usize) {
    sum.fetch_add(to.wrapping_sub(from), Ordering::Relaxed);
    gauge.increment(float(to) - float(from));
}

#[allow(clippy::cast_precision_loss)] // Both are small.
fn float(count: usize) -> f64 {
    count as f64
}
