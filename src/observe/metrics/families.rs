//! Names, units and descriptions of all metrics.

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder, Unit};

#[derive(Clone, Copy)]
pub(super) struct Family {
    kind: Kind,
    name: &'static str,
    unit: Unit,
    meaning: &'static str,
}

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

macro_rules! families {
    ($($family:ident: $kind:ident of $unit:ident, $name:literal: $meaning:literal;)*) => {
        $(pub(super) const $family: Family = Family {
            kind: Kind::$kind,
            name: $name,
            unit: Unit::$unit,
            meaning: $meaning,
        };)*

        const ALL: &[Family] = &[$($family),*];
    };
}

families! {
    ACQUIRES: Counter of Count, "quorlock_acquires_total":
        "Completed acquires, by outcome.";
    ACQUIRE_WAIT: Histogram of Seconds, "quorlock_acquire_wait_seconds":
        "Duration of acquires.";
    WAITERS: Gauge of Count, "quorlock_waiters":
        "Acquires waiting for their turn or for their next attempt.";
    LEASES_HELD: Gauge of Count, "quorlock_leases_held":
        "Leases currently held.";
    HOLD: Histogram of Seconds, "quorlock_hold_seconds":
        "Time from the acquire of a lease to its release or loss.";
    LEASES_LOST: Counter of Count, "quorlock_leases_lost_total":
        "Leases lost before their release, by reason.";
    EXTENDS: Counter of Count, "quorlock_extends_total":
        "Extensions requested by holders, by outcome.";
    RENEWALS: Counter of Count, "quorlock_renewals_total":
        "Background renewals, by result.";
    RENEWAL_SLACK: Histogram of Seconds, "quorlock_renewal_slack_seconds":
        "Validity that remained when a background renewal succeeded.";
    RELEASES: Counter of Count, "quorlock_releases_total":
        "Completed releases, by result.";
    VOTES: Counter of Count, "quorlock_votes_total":
        "Replies of nodes, including missing ones, by request and vote.";
    ROUND_TRIP: Histogram of Seconds, "quorlock_round_trip_seconds":
        "Time from writing a command to reading its reply.";
    NODE_COUNTED: Gauge of Count, "quorlock_node_counted":
        "Clients of this process for which the node counts: 0 or 1 for a single client.";
    NODE_CLIENTS: Gauge of Count, "quorlock_node_clients":
        "Clients of this process that have contacted the node.";
    PENDING_RELEASES: Gauge of Count, "quorlock_releases_owed":
        "Releases that the node has not confirmed yet.";
    CONNECTIONS: Gauge of Count, "quorlock_connections":
        "Open connections to the node.";
    CONNECTIONS_OPENED: Counter of Count, "quorlock_connections_opened_total":
        "Connections to the node that were established.";
    CONNECTIONS_CLOSED: Counter of Count, "quorlock_connections_closed_total":
        "Connections to the node that were closed, by reason.";
    CONNECT_FAILURES: Counter of Count, "quorlock_connect_failures_total":
        "Failed attempts to connect to the node.";
}

const METADATA: Metadata<'static> = Metadata::new("quorlock", Level::INFO, Some("quorlock"));

pub(super) fn describe(recorder: &dyn Recorder) {
    for Family { kind, name, unit, meaning } in ALL {
        let (name, unit, meaning) = ((*name).into(), Some(*unit), (*meaning).into());
        match kind {
            Kind::Counter => recorder.describe_counter(name, unit, meaning),
            Kind::Gauge => recorder.describe_gauge(name, unit, meaning),
            Kind::Histogram => recorder.describe_histogram(name, unit, meaning),
        }
    }
}

impl Family {
    fn key(&self, labels: &[Label]) -> Key {
        Key::from_parts(self.name, labels.to_vec())
    }

    pub(super) fn counter(&self, recorder: &dyn Recorder, labels: &[Label]) -> Counter {
        recorder.register_counter(&self.key(labels), &METADATA)
    }

    pub(super) fn gauge(&self, recorder: &dyn Recorder, labels: &[Label]) -> Gauge {
        let gauge = recorder.register_gauge(&self.key(labels), &METADATA);
        // Makes recorders export a new gauge as 0. `set(0.0)` would erase the contributions of other clients.
        gauge.increment(0.0);
        gauge
    }

    pub(super) fn histogram(&self, recorder: &dyn Recorder, labels: &[Label]) -> Histogram {
        recorder.register_histogram(&self.key(labels), &METADATA)
    }

    /// Creates one counter for each value of the label `name`. All counters start at 0, so that monitoring systems see
    /// the first event as an increase.
    pub(super) fn counters<K: Copy>(
        &self,
        recorder: &dyn Recorder,
        labels: &[Label],
        name: &'static str,
        each: &[(K, &'static str)],
    ) -> Counters<K> {
        let counter = |(key, word): &(K, &'static str)| {
            let labels = [labels, &[Label::from_static_parts(name, word)]].concat();
            let counter = self.counter(recorder, &labels);
            counter.increment(0);
            (*key, counter)
        };
        Counters(each.iter().map(counter).collect())
    }
}

pub(super) struct Counters<K>(Box<[(K, Counter)]>);

impl<K: PartialEq> Counters<K> {
    pub(super) fn count(&self, kind: &K) {
        if let Some((_, counter)) = self.0.iter().find(|(known, _)| known == kind) {
            counter.increment(1);
        }
    }
}
