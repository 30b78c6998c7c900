//! Metrics per node.

use super::families::{self, Counters};
use crate::observe::event::{CommandKind, Event, NodeHealth};
use crate::observe::report::NodeVote;
use crate::wire::NodeFailure;
use metrics::{Counter, Gauge, Histogram, Label, Recorder};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

// Values of the label `reason` of closed connections.
const DISCONNECTED: &str = "disconnected";
const STALLED: &str = "stalled";
const SHUT_DOWN: &str = "shut_down";
const CLOSED: &str = "closed";

/// Metric handles for one node of one client. Gauges are incremented and decremented instead of set, so that the values
/// of several clients in a process add up.
pub(super) struct Node {
    pub(super) name: Arc<str>,
    granted: Counters<CommandKind>,
    held: Counters<CommandKind>,
    missing: Counters<CommandKind>,
    failed: Counters<CommandKind>,
    round_trip: Histogram,
    counted: Gauge,
    clients: Gauge,
    pending_releases: Gauge,
    connections: Gauge,
    opened: Counter,
    closed: Counters<&'static str>,
    connect_failures: Counter,
    // This client's contributions to the gauges, which `end` subtracts.
    is_known: AtomicBool,
    is_counted: AtomicUsize,
    reported_pending: AtomicUsize,
}

impl Node {
    pub(super) fn new(recorder: &dyn Recorder, name: Arc<str>) -> Self {
        let node = [Label::new("node", name.to_string())];
        let gauge = |family: families::Family| family.gauge(recorder, &node);
        let counter = |family: families::Family| family.counter(recorder, &node);
        let votes = |vote| {
            let labels = [node.as_slice(), &[Label::from_static_parts("vote", vote)]].concat();
            families::VOTES.counters(recorder, &labels, "asked", CommandKind::LABELS)
        };
        let reasons = [DISCONNECTED, STALLED, SHUT_DOWN, CLOSED].map(|reason| (reason, reason));
        Self {
            granted: votes("granted"),
            held: votes("held"),
            missing: votes("missing"),
            failed: votes("failed"),
            round_trip: families::ROUND_TRIP.histogram(recorder, &node),
            counted: gauge(families::NODE_COUNTED),
            clients: gauge(families::NODE_CLIENTS),
            pending_releases: gauge(families::PENDING_RELEASES),
            connections: gauge(families::CONNECTIONS),
            opened: counter(families::CONNECTIONS_OPENED),
            closed: families::CONNECTIONS_CLOSED.counters(recorder, &node, "reason", &reasons),
            connect_failures: counter(families::CONNECT_FAILURES),
            name,
            is_known: AtomicBool::new(false),
            is_counted: AtomicUsize::new(0),
            reported_pending: AtomicUsize::new(0),
        }
    }

    pub(super) fn handle(&self, event: &Event) {
        match event {
            Event::CommandFinished { command, vote, round_trip, .. } => {
                let votes = match vote {
                    NodeVote::Granted => &self.granted,
                    NodeVote::Held => &self.held,
                    NodeVote::Missing => &self.missing,
                    NodeVote::Failed(_) | NodeVote::Pending => &self.failed,
                };
                votes.count(command);
                if let Some(round_trip) = round_trip {
                    self.round_trip.record(round_trip.as_secs_f64());
                }
            }
            Event::NodeHealthChanged { from, to, .. } => {
                if *from == NodeHealth::Unknown && !self.is_known.swap(true, Ordering::Relaxed) {
                    self.clients.increment(1.0);
                }
                let is_counted = |health: &NodeHealth| usize::from(health.is_counted());
                change(&self.counted, &self.is_counted, is_counted(from), is_counted(to));
            }
            Event::PendingReleasesChanged { before, pending, .. } => {
                change(&self.pending_releases, &self.reported_pending, *before, *pending);
            }
            Event::ConnectionOpened { .. } => {
                self.opened.increment(1);
                self.connections.increment(1.0);
            }
            Event::ConnectionClosed { reason, .. } => {
                self.connections.decrement(1.0);
                self.closed.count(&match reason {
                    None => CLOSED,
                    Some(NodeFailure::ShutDown) => SHUT_DOWN,
                    Some(NodeFailure::Stalled(_)) => STALLED,
                    Some(_) => DISCONNECTED,
                });
            }
            Event::ConnectFailed { .. } => self.connect_failures.increment(1),
            _ => {}
        }
    }

    /// Subtracts this client's contributions from the gauges.
    pub(super) fn end(&self) {
        if self.is_known.swap(false, Ordering::Relaxed) {
            self.clients.decrement(1.0);
        }
        change(&self.counted, &self.is_counted, self.is_counted.load(Ordering::Relaxed), 0);
        change(
            &self.pending_releases,
            &self.reported_pending,
            self.reported_pending.load(Ordering::Relaxed),
            0,
        );
    }
}

/// Changes `gauge` by the difference between `from` and `to`, and tracks the total change in `sum`. The final values
/// are correct even if events of several threads arrive out of order.
fn change(gauge: &Gauge, sum: &AtomicUsize, from: usize, to: usize) {
    sum.fetch_add(to.wrapping_sub(from), Ordering::Relaxed);
    gauge.increment(float(to) - float(from));
}

#[allow(clippy::cast_precision_loss)] // The counts are far below 2^53.
fn float(count: usize) -> f64 {
    count as f64
}
