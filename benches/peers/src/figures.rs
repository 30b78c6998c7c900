//! The printed figures of one contender in one scenario.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::counts::Counts;
use crate::digits::float;
use crate::ratio::rate;
use crate::tally::{Measurements, Sample};

pub(crate) struct Figures {
    cycles: u64,
    /// The median rate in cycles per second.
    pub(crate) rate: f64,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    pub(crate) max_ms: Option<f64>,
    /// The CPU time of the clients per cycle, in microseconds.
    pub(crate) cpu_us: Option<f64>,
    /// The CPU time per node and cycle, in microseconds.
    pub(crate) node_us: Option<f64>,
    /// The time that a node spends on the commands of one cycle, in microseconds, according to its `INFO commandstats`.
    pub(crate) server_us: Option<f64>,
    /// The number of commands per node and cycle.
    pub(crate) commands: Option<f64>,
    /// The number of voluntary context switches per cycle, summed over the clients' threads.
    pub(crate) context_switches: Option<f64>,
    /// The number of instructions per cycle that the clients execute outside the kernel.
    pub(crate) instructions: Option<f64>,
    pub(crate) allocations: Option<f64>,
    pub(crate) allocated_bytes: Option<f64>,
    pub(crate) calls: Option<f64>,
}

impl Figures {
    pub(crate) fn of(tally: &Measurements) -> Self {
        let samples = &tally.samples;
        let cycles = samples.iter().map(|sample| sample.cycles).sum();
        let per_cycle = |of: fn(&Sample) -> f64| per(samples.iter().map(of).sum(), cycles);
        let latency = &tally.latency;
        let millis = |nanos: u64| (!latency.is_empty()).then(|| float(nanos) / 1e6);
        let instructions: Option<u64> =
            samples.iter().map(|sample| sample.usage.instructions).sum();
        let counted = |of: fn(Counts) -> u64| {
            let sample = tally.counted.as_ref()?;
            per(float(of(sample.usage.counts?)), sample.cycles)
        };
        Self {
            cycles,
            rate: rate(tally),
            p50_ms: millis(latency.value_at_quantile(0.5)),
            p99_ms: millis(latency.value_at_quantile(0.99)),
            max_ms: millis(latency.max()),
            cpu_us: per_cycle(|sample| sample.usage.cpu.as_secs_f64() * 1e6),
            node_us: per_cycle(|sample| sample.nodes.each(sample.nodes.cpu.as_secs_f64()) * 1e6),
            server_us: per_cycle(|sample| sample.nodes.each(float(sample.nodes.commands.usec))),
            commands: per_cycle(|sample| sample.nodes.each(float(sample.nodes.commands.calls))),
            context_switches: per_cycle(|sample| float(sample.usage.context_switches)),
            instructions: instructions.and_then(|count| per(float(count), cycles)),
            allocations: counted(|counts| counts.allocations),
            allocated_bytes: counted(|counts| counts.bytes),
            calls: counted(|counts| counts.calls),
        }
    }

    /// Returns the figures as a JSON object. Its names contain the units, and unknown values are `null`.
    pub(crate) fn json(&self, tally: &Measurements) -> Value {
        let failures = tally.failures.iter();
        let failures: BTreeMap<_, _> =
            failures.map(|(kind, failure)| (kind, failure.count)).collect();
        json!({
            "cycles": self.cycles,
            "cycles_per_s": self.rate,
            "p50_ms": self.p50_ms,
            "p99_ms": self.p99_ms,
            "max_ms": self.max_ms,
            "cpu_us_per_cycle": self.cpu_us,
            "node_cpu_us_per_cycle": self.node_us,
            "server_us_per_cycle_and_node": self.server_us,
            "commands_per_cycle_and_node": self.commands,
            "voluntary_switches_per_cycle": self.context_switches,
            "user_instructions_per_cycle": self.instructions,
            "allocations_per_cycle": self.allocations,
            "allocated_bytes_per_cycle": self.allocated_bytes,
            "system_calls_per_cycle": self.calls,
            "counted_cycles": tally.counted.map(|sample| sample.cycles),
            "counted_failures": tally.counted.map(|sample| sample.failed),
            "failures": failures,
        })
    }
}

/// Returns the mean per cycle, or `None` if no cycle was completed.
fn per(sum: f64, cycles: u64) -> Option<f64> {
    (cycles > 0).then(|| sum / float(cycles))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Figures;
    use crate::counts::Counts;
    use crate::node_usage::{Commands, NodeUsage};
    use crate::tally::{Measured, Measurements, Sample};
    use crate::usage::Usage;

    fn measured(cycles: u64, instructions: Option<u64>, counts: Option<Counts>) -> Measured {
        let cpu = Duration::from_micros(40);
        let usage = Usage { cpu, context_switches: 6, instructions, counts };
        let latencies_ns = (0..cycles).map(|_| 2_000_000).collect();
        Measured { usage, latencies_ns, ..Measured::default() }
    }

    fn nodes() -> NodeUsage {
        let commands = Commands { calls: 50, usec: 250 };
        NodeUsage { cpu: Duration::from_millis(1), commands, nodes: 5 }
    }

    fn is(value: Option<f64>, expected: f64) -> bool {
        value.is_some_and(|value| (value - expected).abs() < 1e-9)
    }

    #[test]
    fn figures_are_per_cycle_and_node() {
        let mut tally = Measurements::new();
        tally.absorb(vec![measured(3, Some(100), None)], nodes(), false);
        tally.absorb(vec![measured(7, Some(300), None)], nodes(), false);
        let counts = Counts { allocations: 20, bytes: 400, calls: 8 };
        tally.counted = Some(Sample::of(&[measured(4, None, Some(counts))], nodes()));
        let figures = Figures::of(&tally);
        assert_eq!(figures.cycles, 10);
        assert!(is(figures.cpu_us, 8.0) && is(figures.context_switches, 1.2));
        assert!(is(figures.instructions, 40.0));
        assert!(is(figures.node_us, 40.0) && is(figures.server_us, 10.0), "per node, of five");
        assert!(is(figures.commands, 2.0));
        assert!(is(figures.allocations, 5.0), "from the slice with counts");
        assert!(is(figures.allocated_bytes, 100.0) && is(figures.calls, 2.0));
        assert!(figures.json(&tally)["user_instructions_per_cycle"].is_number());
    }

    #[test]
    fn figures_without_counts_or_cycles_are_unknown() {
        let mut tally = Measurements::new();
        let figures = Figures::of(&tally);
        assert!(figures.cpu_us.is_none() && figures.server_us.is_none());
        tally.absorb(vec![measured(3, None, None)], nodes(), false);
        let figures = Figures::of(&tally);
        assert!(figures.instructions.is_none() && figures.allocations.is_none());
        assert!(figures.json(&tally)["system_calls_per_cycle"].is_null());
    }
}
