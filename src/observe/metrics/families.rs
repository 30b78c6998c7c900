//! Every metric that there is: its name, its unit, what it means.

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder, Unit};

/// One metric, for all values of its labels.
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
        "Acquires that have ended, by what came of them.";
    ACQUIRE_WAIT: Histogram of Seconds, "quorlock_acquire_wait_seconds":
        "How long acquires took, from their begin to their end.";
    WAITERS: Gauge of Count, "quorlock_waiters":
        "Acquires that wait now: in line, or for their next attempt.";
    LEASES_HELD: Gauge of Count, "quorlock_leases_held":
        "Leases that are held now.";
    HOLD: Histogram of Seconds, "quorlock_hold_seconds":
        "How long leases were held, to their release or their loss.";
    LEASES_LOST: Counter of Count, "quorlock_leases_lost_total":
        "Leases that ended before they were released, by why.";
    EXTENDS: Counter of Count, "quorlock_extends_total":
        "Extensions that holders asked for, by what came of them.";
    RENEWALS: Counter of Count, "quorlock_renewals_total":
        "Extensions in the background, by whether they came through.";
    RENEWAL_SLACK: Histogram of Seconds, "quorlock_renewal_slack_seconds":
        "What was left of the validity when a lease was renewed in the background.";
    RELEASES: Counter of Count, "quorlock_releases_total":
        "Releases that have ended, by what came of them.";
    VOTES: Counter of Count, "quorlock_votes_total":
        "Answers of nodes to what they were asked for, those that never came included.";
    ROUND_TRIP: Histogram of Seconds, "quorlock_round_trip_seconds":
        "From when a command was written to a node to when its answer was read.";
    NODE_COUNTED: Gauge of Count, "quorlock_node_counted":
        "Clients of this process with which the node counts: 0 or 1 where there is one client.";
    NODE_CLIENTS: Gauge of Count, "quorlock_node_clients":
        "Clients of this process that know how the node stands.";
    RELEASES_OWED: Gauge of Count, "quorlock_releases_owed":
        "Releases that the node has not taken yet.";
    CONNECTIONS: Gauge of Count, "quorlock_connections":
        "Connections to the node that stand now.";
    CONNECTIONS_OPENED: Counter of Count, "quorlock_connections_opened_total":
        "Connections to the node that were made.";
    CONNECTIONS_CLOSED: Counter of Count, "quorlock_connections_closed_total":
        "Connections to the node that have ended, by why.";
    CONNECT_FAILURES: Counter of Count, "quorlock_connect_failures_total":
        "Connections to the node that could not be made.";
}

const METADATA: Metadata<'static> = Metadata::new("quorlock", Level::INFO, Some("quorlock"));

/// Tells `recorder` what each of them means.
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
        // It is 0 from now on, and not unknown, unless another client has begun to count.
        gauge.increment(0.0);
        gauge
    }

    pub(super) fn histogram(&self, recorder: &dyn Recorder, labels: &[Label]) -> Histogram {
        recorder.register_histogram(&self.key(labels), &METADATA)
    }

    /// One counter for `each`, told apart by a label of this `name`. All are 0 from now on: the first event is an
    /// increase that can be seen.
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

/// The counters of one metric, by one of its labels.
pub(super) struct Counters<K>(Box<[(K, Counter)]>);

impl<K: PartialEq> Counters<K> {
    /// Counts one of this kind.
    pub(super) fn count(&self, kind: &K) {
        if let Some((_, counter)) = self.0.iter().find(|(known, _)| known == kind) {
            counter.increment(1);
        }
    }
}
