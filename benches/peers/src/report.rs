//! From tallies to figures: rates, percentiles, ratios, as table rows and as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::duel::Outcome;
use crate::measure::{Failure, Failures, Measurements, Sample};
use crate::table::Table;

/// The headings of the table; "/ base" columns are ratios of the figures to those of the scenario's first row.
const HEADINGS: [&str; 13] = [
    "scenario",
    "library",
    "cycles/s",
    "p50 ms",
    "p99 ms",
    "max ms",
    "CPU us/cycle",
    "node us/cycle",
    "failed",
    "rate / base",
    "p50 / base",
    "p99 / base",
    "CPU / base",
];

/// The figures of one contender in one scenario.
struct Figures {
    cycles: u64,
    /// Median over the slices, in cycles per second.
    rate: f64,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    max_ms: Option<f64>,
    /// CPU time of this process for each cycle, in microseconds.
    cpu_us: Option<f64>,
    /// CPU time of a node for each cycle, in microseconds.
    node_us: Option<f64>,
}

impl Figures {
    fn of(tally: &Measurements) -> Self {
        let cycles = tally.samples.iter().map(|sample| sample.cycles).sum();
        let cpu_s: f64 = tally.samples.iter().map(|sample| sample.cpu.as_secs_f64()).sum();
        let of_one =
            |(used, nodes): (Duration, usize)| used.as_secs_f64() / float(nodes.max(1) as u64);
        let nodes_s: f64 = tally.samples.iter().map(|sample| of_one(sample.servers)).sum();
        let latency = &tally.latency;
        let millis = |nanos: u64| (!latency.is_empty()).then(|| float(nanos) / 1e6);
        Self {
            cycles,
            rate: rate(tally),
            p50_ms: millis(latency.value_at_quantile(0.5)),
            p99_ms: millis(latency.value_at_quantile(0.99)),
            max_ms: millis(latency.max()),
            cpu_us: (cycles > 0).then(|| cpu_s * 1e6 / float(cycles)),
            node_us: (cycles > 0).then(|| nodes_s * 1e6 / float(cycles)),
        }
    }

    fn json(&self, failures: &Failures) -> Value {
        let failures: BTreeMap<_, _> =
            failures.iter().map(|(kind, failure)| (kind, failure.count)).collect();
        json!({
            "cycles": self.cycles,
            "cycles_per_s": self.rate,
            "p50_ms": self.p50_ms,
            "p99_ms": self.p99_ms,
            "max_ms": self.max_ms,
            "cpu_us_per_cycle": self.cpu_us,
            "node_cpu_us_per_cycle": self.node_us,
            "failures": failures,
        })
    }
}

/// How a rate compares with that of the base.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ratio {
    /// The median over the rounds of the ratio within the round, its least and its greatest.
    Paired { median: f64, min: f64, max: f64 },
    /// Rounds cannot be paired, for the base had one without a cycle: mean rate over mean rate.
    Means(f64),
    /// The base finished nothing at all; had it finished one cycle, the ratio would be this.
    MoreThan(f64),
    /// Neither finished anything.
    Unknown,
}

impl Ratio {
    fn of(samples: &[Sample], base: &[Sample]) -> Self {
        let (rate, base_rate) = (mean_rate(samples), mean_rate(base));
        let base_s: f64 = base.iter().map(|sample| sample.elapsed.as_secs_f64()).sum();
        if rate <= 0.0 && base_rate <= 0.0 {
            Self::Unknown
        } else if base_rate <= 0.0 {
            Self::MoreThan(rate * base_s)
        } else if base.iter().any(|sample| sample.cycles == 0) {
            Self::Means(rate / base_rate)
        } else {
            let ratios: Vec<f64> =
                samples.iter().zip(base).map(|(sample, base)| sample.rate / base.rate).collect();
            Self::Paired {
                min: ratios.iter().copied().fold(f64::INFINITY, f64::min),
                max: ratios.iter().copied().fold(0.0, f64::max),
                median: median(ratios),
            }
        }
    }

    fn text(self) -> String {
        match self {
            Self::Paired { median, min, max } => {
                format!("{} ({} to {})", times(median), digits(min), digits(max))
            }
            Self::Means(ratio) => times(ratio),
            Self::MoreThan(ratio) => format!("> {}", times(ratio)),
            Self::Unknown => "-".to_owned(),
        }
    }

    fn json(self) -> Value {
        match self {
            Self::Paired { median, min, max } => {
                json!({ "median": median, "min": min, "max": max })
            }
            Self::Means(ratio) => json!({ "of_means": ratio }),
            Self::MoreThan(ratio) => json!({ "more_than": ratio }),
            Self::Unknown => Value::Null,
        }
    }
}

/// The outcomes as one table.
pub(crate) fn table(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new(&HEADINGS, 2);
    for outcome in outcomes {
        let base = &outcome.measured[0].1;
        let base_figures = Figures::of(base);
        for (index, (name, tally)) in outcome.measured.iter().enumerate() {
            let figures = Figures::of(tally);
            let mut row = vec![
                outcome.scenario.name.to_owned(),
                (*name).to_owned(),
                digits(figures.rate),
                optional(figures.p50_ms),
                optional(figures.p99_ms),
                optional(figures.max_ms),
                optional(figures.cpu_us),
                optional(figures.node_us),
                tally.failed().to_string(),
            ];
            if index == 0 {
                row.extend(["1".to_owned(), "1".to_owned(), "1".to_owned(), "1".to_owned()]);
            } else {
                row.push(Ratio::of(&tally.samples, &base.samples).text());
                row.push(quotient(figures.p50_ms, base_figures.p50_ms));
                row.push(quotient(figures.p99_ms, base_figures.p99_ms));
                row.push(quotient(figures.cpu_us, base_figures.cpu_us));
            }
            table.push(row);
        }
    }
    table
}

/// One line for each kind of failure, with an example.
pub(crate) fn failures(outcomes: &[Outcome]) -> Vec<String> {
    let mut lines = Vec::new();
    for outcome in outcomes {
        for (name, tally) in &outcome.measured {
            for failure in tally.failures.values() {
                let Failure { count, example } = failure;
                lines.push(format!("{}, {name}: {count} x {example}", outcome.scenario.name));
            }
        }
    }
    lines
}

/// The outcomes as JSON; every name says its unit.
pub(crate) fn json(outcomes: &[Outcome]) -> Value {
    let mut rows = Vec::new();
    for outcome in outcomes {
        let base = &outcome.measured[0].1.samples;
        for (name, tally) in &outcome.measured {
            let mut row = Figures::of(tally).json(&tally.failures);
            row["scenario"] = json!(outcome.scenario.name);
            row["library"] = json!(name);
            row["slice_cycles_per_s"] =
                tally.samples.iter().map(|sample| json!(sample.rate)).collect();
            row["tasks"] = json!(outcome.scenario.tasks);
            row["rate_over_base"] = Ratio::of(&tally.samples, base).json();
            rows.push(row);
        }
    }
    Value::Array(rows)
}

/// Cycles per second: the median over the slices.
pub(crate) fn rate(tally: &Measurements) -> f64 {
    median(tally.samples.iter().map(|sample| sample.rate).collect())
}

fn mean_rate(samples: &[Sample]) -> f64 {
    let sum: f64 = samples.iter().map(|sample| sample.rate).sum();
    sum / float(samples.len().max(1) as u64)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[len / 2],
        len => f64::midpoint(values[len / 2 - 1], values[len / 2]),
    }
}

/// Exact below 2^53: far above any count or any number of nanoseconds here.
#[expect(clippy::cast_precision_loss, reason = "the values are far below 2^53")]
fn float(value: u64) -> f64 {
    value as f64
}

/// About three significant digits, but never fewer than all digits before the point.
fn digits(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ if value >= 1.0 => format!("{value:.2}"),
        _ if value >= 0.01 => format!("{value:.3}"),
        _ => format!("{value:.6}"),
    }
}

fn times(value: f64) -> String {
    format!("{}x", digits(value))
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), digits)
}

fn quotient(value: Option<f64>, base: Option<f64>) -> String {
    match (value, base) {
        (Some(value), Some(base)) if base > 0.0 => times(value / base),
        _ => "-".to_owned(),
    }
}
