//! What the slices of a contender came to, added up.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::node_usage::NodeUsage;
use crate::usage::Usage;

/// Latencies are kept between 1 us and 2 min, in nanoseconds, to three digits.
const LATENCY_NS: (u64, u64) = (1_000, 120_000_000_000);

/// What one process saw in a slice.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// Cycles per second: for each task its cycles over the time until its last one ended, summed.
    pub(crate) rate: f64,
    /// From the start until the last task came back or was aborted.
    pub(crate) elapsed: Duration,
    /// What the process has used up meanwhile.
    pub(crate) usage: Usage,
    /// One for each cycle.
    pub(crate) latencies_ns: Vec<u64>,
    /// What failed.
    pub(crate) failures: Failures,
    /// From when to when somebody had the lock that all want, by a clock that all processes share.
    pub(crate) holds_ns: Vec<(u64, u64)>,
}

/// What one slice came to, over all processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Cycles finished.
    pub(crate) cycles: u64,
    /// Cycles that failed.
    pub(crate) failed: u64,
    /// Cycles per second, summed over the processes.
    pub(crate) rate: f64,
    /// From the start until the last task came back or was aborted.
    pub(crate) elapsed: Duration,
    /// What the clients have used up.
    pub(crate) usage: Usage,
    /// What the nodes have used up.
    pub(crate) nodes: NodeUsage,
}

/// All that is known of one contender in one scenario.
pub(crate) struct Measurements {
    /// One entry for each measured slice.
    pub(crate) samples: Vec<Sample>,
    /// Nanoseconds, of all measured slices together.
    pub(crate) latency: Histogram<u64>,
    /// What failed, by kind, warm-up included.
    pub(crate) failures: Failures,
    /// The slice in which allocations and calls were counted, if there was one.
    pub(crate) counted: Option<Sample>,
}

/// Failures by kind: the part of the message before its first colon or comma.
pub(crate) type Failures = BTreeMap<String, Failure>;

/// Failures of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// How many there were.
    pub(crate) count: u64,
    /// The whole message of the first.
    pub(crate) example: String,
}

/// Counts a failure.
pub(crate) fn fail(failures: &mut Failures, example: String) {
    let kind = example.split([':', ',']).next().unwrap_or_default().to_owned();
    add(failures, kind, Failure { count: 1, example });
}

fn add(failures: &mut Failures, kind: String, more: Failure) {
    match failures.get_mut(&kind) {
        Some(known) => known.count += more.count,
        None => drop(failures.insert(kind, more)),
    }
}

impl Measurements {
    /// Nothing measured yet.
    pub(crate) fn new() -> Self {
        let latency = Histogram::new_with_bounds(LATENCY_NS.0, LATENCY_NS.1, 3)
            .expect("the bounds are constants that fit");
        Self { samples: Vec::new(), latency, failures: Failures::new(), counted: None }
    }

    /// Takes over what each process saw in a slice; of a warm-up only the failures count.
    pub(crate) fn absorb(&mut self, seen: Vec<Seen>, nodes: NodeUsage, warm_up: bool) {
        let mut holds: Vec<_> = seen.iter().flat_map(|seen| seen.holds_ns.clone()).collect();
        for _ in 0..overlaps(&mut holds) {
            fail(&mut self.failures, "TWO HOLDERS AT ONCE".to_owned());
        }
        let sample = Sample::of(&seen, nodes);
        for seen in seen {
            for (kind, failure) in seen.failures {
                add(&mut self.failures, kind, failure);
            }
            if !warm_up {
                for nanos in seen.latencies_ns {
                    self.latency.saturating_record(nanos);
                }
            }
        }
        if !warm_up {
            self.samples.push(sample);
        }
    }

    /// Failures of every kind together.
    pub(crate) fn failed(&self) -> u64 {
        sum(&self.failures)
    }
}

fn sum(failures: &Failures) -> u64 {
    failures.values().map(|failure| failure.count).sum()
}

impl Sample {
    /// What all processes saw together.
    pub(crate) fn of(seen: &[Seen], nodes: NodeUsage) -> Self {
        let usages = seen.iter().map(|seen| seen.usage);
        Self {
            cycles: seen.iter().map(|seen| seen.latencies_ns.len() as u64).sum(),
            failed: seen.iter().map(|seen| sum(&seen.failures)).sum(),
            rate: seen.iter().map(|seen| seen.rate).sum(),
            elapsed: seen.iter().map(|seen| seen.elapsed).max().unwrap_or_default(),
            usage: usages.reduce(|one, other| one + other).unwrap_or_default(),
            nodes,
        }
    }
}

/// How many of these times begin before an earlier one has ended.
fn overlaps(holds: &mut [(u64, u64)]) -> usize {
    holds.sort_unstable();
    let mut free_from = 0;
    let mut count = 0;
    for &mut (begun, ended) in holds {
        count += usize::from(begun < free_from);
        free_from = free_from.max(ended);
    }
    count
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Failure, Measurements, Seen, fail, overlaps};
    use crate::node_usage::NodeUsage;
    use crate::usage::Usage;

    #[test]
    fn holds_that_overlap_are_counted() {
        assert_eq!(overlaps(&mut []), 0);
        assert_eq!(overlaps(&mut [(20, 30), (0, 10), (10, 20)]), 0, "one after the other");
        assert_eq!(overlaps(&mut [(0, 10), (9, 20)]), 1);
        assert_eq!(overlaps(&mut [(0, 100), (10, 20), (30, 40), (100, 110)]), 2, "within another");
    }

    fn seen(cycles: u64, rate: f64, ms: u64) -> Seen {
        let time = Duration::from_millis(ms);
        Seen {
            rate,
            elapsed: time,
            usage: Usage { cpu: time, ..Usage::default() },
            latencies_ns: (1..=cycles).map(|number| number * 10_000).collect(),
            ..Seen::default()
        }
    }

    #[test]
    fn processes_are_added_up() {
        let mut tally = Measurements::new();
        let mut slow = seen(2, 20.0, 300);
        fail(&mut slow.failures, "late: by 3 ms".to_owned());
        fail(&mut slow.failures, "late, by 9 ms".to_owned());
        slow.holds_ns = vec![(5, 7)];
        let quick = Seen { holds_ns: vec![(6, 8)], ..seen(3, 30.0, 200) };
        tally.absorb(vec![slow, quick], NodeUsage::default(), false);
        let sample = tally.samples[0];
        assert_eq!((sample.cycles, sample.failed, tally.latency.len()), (5, 2, 5));
        assert!((sample.rate - 50.0).abs() < 1e-9);
        assert_eq!(sample.elapsed, Duration::from_millis(300), "the longest");
        assert_eq!(sample.usage.cpu, Duration::from_millis(500), "all together");
        let late = Failure { count: 2, example: "late: by 3 ms".to_owned() };
        assert_eq!(tally.failures["late"], late);
        assert_eq!((tally.failures["TWO HOLDERS AT ONCE"].count, tally.failed()), (1, 3));
    }

    #[test]
    fn of_a_warm_up_only_the_failures_count() {
        let mut tally = Measurements::new();
        let mut first = seen(2, 20.0, 300);
        fail(&mut first.failures, "refused".to_owned());
        tally.absorb(vec![first], NodeUsage::default(), true);
        assert_eq!((tally.samples.len(), tally.latency.len(), tally.failed()), (0, 0, 1));
    }
}
