//! Sums the measurements of a contender.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::node_usage::NodeUsage;
use crate::usage::Usage;

/// The range of the latency histogram in nanoseconds: 1 us to 2 min. Latencies have three significant digits.
const LATENCY_NS: (u64, u64) = (1_000, 120_000_000_000);

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// The sum of the tasks' rates, in cycles per second. A task's rate is its number of cycles divided by the time
    /// until its last cycle ended.
    pub(crate) rate: f64,
    /// The time from the start until the last task ended or was aborted.
    pub(crate) elapsed: Duration,
    /// The resource usage of the process during `elapsed`.
    pub(crate) usage: Usage,
    pub(crate) latencies_ns: Vec<u64>,
    pub(crate) failures: Failures,
    /// The start and end of each hold of the shared lock, in nanoseconds on a clock that all processes share.
    pub(crate) holds_ns: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) cycles: u64,
    pub(crate) failed: u64,
    /// The cycles per second, summed over the processes.
    pub(crate) rate: f64,
    /// The time from the start until the last task ended or was aborted.
    pub(crate) elapsed: Duration,
    pub(crate) usage: Usage,
    pub(crate) nodes: NodeUsage,
}

pub(crate) struct Measurements {
    /// The measurements after the warm-up.
    pub(crate) samples: Vec<Sample>,
    pub(crate) latency: Histogram<u64>,
    /// The failures, including those in the warm-up.
    pub(crate) failures: Failures,
    /// A separate measurement in which allocations and system calls were counted. `None` if they cannot be counted.
    pub(crate) counted: Option<Sample>,
}

/// The failures by kind. The kind is the message up to its first colon or comma.
pub(crate) type Failures = BTreeMap<String, Failure>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) count: u64,
    /// The full message of the first failure of this kind.
    pub(crate) example: String,
}

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
    pub(crate) fn new() -> Self {
        let latency =
            Histogram::new_with_bounds(LATENCY_NS.0, LATENCY_NS.1, 3).expect("valid bounds");
        Self { samples: Vec::new(), latency, failures: Failures::new(), counted: None }
    }

    /// Adds the measurements of one slice. In the warm-up, adds only the failures.
    pub(crate) fn absorb(&mut self, measured: Vec<Measured>, nodes: NodeUsage, warm_up: bool) {
        let mut holds: Vec<_> = measured.iter().flat_map(|one| one.holds_ns.clone()).collect();
        for _ in 0..overlaps(&mut holds) {
            fail(&mut self.failures, "TWO HOLDERS AT ONCE".to_owned());
        }
        let sample = Sample::of(&measured, nodes);
        for one in measured {
            for (kind, failure) in one.failures {
                add(&mut self.failures, kind, failure);
            }
            if !warm_up {
                for nanos in one.latencies_ns {
                    self.latency.saturating_record(nanos);
                }
            }
        }
        if !warm_up {
            self.samples.push(sample);
        }
    }

    pub(crate) fn failed(&self) -> u64 {
        sum(&self.failures)
    }
}

fn sum(failures: &Failures) -> u64 {
    failures.values().map(|failure| failure.count).sum()
}

impl Sample {
    pub(crate) fn of(measured: &[Measured], nodes: NodeUsage) -> Self {
        let usages = measured.iter().map(|one| one.usage);
        Self {
            cycles: measured.iter().map(|one| one.latencies_ns.len() as u64).sum(),
            failed: measured.iter().map(|one| sum(&one.failures)).sum(),
            rate: measured.iter().map(|one| one.rate).sum(),
            elapsed: measured.iter().map(|one| one.elapsed).max().unwrap_or_default(),
            usage: usages.reduce(|one, other| one + other).unwrap_or_default(),
            nodes,
        }
    }
}

fn overlaps(holds: &mut [(u64, u64)]) -> usize {
    holds.sort_unstable();
    let mut free_from = 0;
    let mut count = 0;
    for &mut (started, ended) in holds {
        count += usize::from(started < free_from);
        free_from = free_from.max(ended);
    }
    count
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Failure, Measured, Measurements, fail, overlaps};
    use crate::node_usage::NodeUsage;
    use crate::usage::Usage;

    #[test]
    fn overlapping_holds_are_counted() {
        assert_eq!(overlaps(&mut []), 0);
        assert_eq!(overlaps(&mut [(20, 30), (0, 10), (10, 20)]), 0, "consecutive");
        assert_eq!(overlaps(&mut [(0, 10), (9, 20)]), 1);
        assert_eq!(overlaps(&mut [(0, 100), (10, 20), (30, 40), (100, 110)]), 2, "within another");
    }

    fn measured(cycles: u64, rate: f64, ms: u64) -> Measured {
        let time = Duration::from_millis(ms);
        Measured {
            rate,
            elapsed: time,
            usage: Usage { cpu: time, ..Usage::default() },
            latencies_ns: (1..=cycles).map(|number| number * 10_000).collect(),
            ..Measured::default()
        }
    }

    #[test]
    fn measurements_of_processes_are_summed() {
        let mut tally = Measurements::new();
        let mut slow = measured(2, 20.0, 300);
        fail(&mut slow.failures, "late: by 3 ms".to_owned());
        fail(&mut slow.failures, "late, by 9 ms".to_owned());
        slow.holds_ns = vec![(5, 7)];
        let quick = Measured { holds_ns: vec![(6, 8)], ..measured(3, 30.0, 200) };
        tally.absorb(vec![slow, quick], NodeUsage::default(), false);
        let sample = tally.samples[0];
        assert_eq!((sample.cycles, sample.failed, tally.latency.len()), (5, 2, 5));
        assert!((sample.rate - 50.0).abs() < 1e-9);
        assert_eq!(sample.elapsed, Duration::from_millis(300), "the maximum");
        assert_eq!(sample.usage.cpu, Duration::from_millis(500), "the sum");
        let late = Failure { count: 2, example: "late: by 3 ms".to_owned() };
        assert_eq!(tally.failures["late"], late);
        assert_eq!((tally.failures["TWO HOLDERS AT ONCE"].count, tally.failed()), (1, 3));
    }

    #[test]
    fn warm_up_adds_only_failures() {
        let mut tally = Measurements::new();
        let mut first = measured(2, 20.0, 300);
        fail(&mut first.failures, "refused".to_owned());
        tally.absorb(vec![first], NodeUsage::default(), true);
        assert_eq!((tally.samples.len(), tally.latency.len(), tally.failed()), (0, 0, 1));
    }
}
