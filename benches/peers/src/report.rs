//! Formats the results as tables and as JSON.

use serde_json::{Value, json};

use crate::comparison::Outcome;
use crate::digits::{digits, optional, quotient};
use crate::figures::Figures;
use crate::ratio::Ratio;
use crate::table::Table;
use crate::tally::Failure;
use crate::waiting::{Cost, WaitResult};

/// The headings of the table of rates. Columns with "/ base" are ratios to the scenario's first row.
const RATES: [&str; 13] = [
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

const COSTS: [&str; 9] = [
    "scenario",
    "library",
    "allocations/cycle",
    "bytes/cycle",
    "system calls/cycle",
    "switches/cycle",
    "instructions/cycle",
    "commands/cycle, node",
    "server us/cycle, node",
];

const WAITS: [&str; 7] = [
    "scenario",
    "library",
    "still waiting",
    "client cores",
    "switches/s",
    "commands/s, node",
    "node cores",
];

pub(crate) fn rates(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new(&RATES, 2);
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

pub(crate) fn costs(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new(&COSTS, 2);
    for outcome in outcomes {
        for (name, tally) in &outcome.measured {
            let figures = Figures::of(tally);
            let cells = [
                figures.allocations,
                figures.allocated_bytes,
                figures.calls,
                figures.context_switches,
                figures.instructions,
                figures.commands,
                figures.server_us,
            ];
            let names = [outcome.scenario.name.to_owned(), (*name).to_owned()];
            table.push(names.into_iter().chain(cells.map(optional)).collect());
        }
    }
    table
}

pub(crate) fn waits(waits: &[WaitResult]) -> Table {
    let mut table = Table::new(&WAITS, 2);
    for waited in waits {
        let cost = waited.cost.as_ref().ok();
        let mut row = vec![waited.scenario.to_owned(), waited.library.to_owned()];
        row.push(cost.map_or_else(|| "-".to_owned(), |cost| cost.waiting.to_string()));
        row.push(optional(cost.map(Cost::cores)));
        row.push(optional(cost.map(Cost::switches_per_s)));
        row.push(optional(cost.map(Cost::commands_per_s)));
        row.push(optional(cost.map(Cost::node_cores)));
        table.push(row);
    }
    table
}

/// Returns one line per kind of failure, with an example of its message.
pub(crate) fn failures(outcomes: &[Outcome], waits: &[WaitResult]) -> Vec<String> {
    let mut lines = Vec::new();
    for outcome in outcomes {
        for (name, tally) in &outcome.measured {
            for failure in tally.failures.values() {
                let Failure { count, example } = failure;
                lines.push(format!("{}, {name}: {count} x {example}", outcome.scenario.name));
            }
        }
    }
    for WaitResult { scenario, library, cost } in waits {
        lines.extend(cost.as_ref().err().map(|error| format!("{scenario}, {library}: {error}")));
    }
    lines
}

/// Formats the results as JSON. The field names contain the units.
pub(crate) fn json(outcomes: &[Outcome]) -> Value {
    let mut rows = Vec::new();
    for outcome in outcomes {
        let base = &outcome.measured[0].1.samples;
        for (name, tally) in &outcome.measured {
            let mut row = Figures::of(tally).json(tally);
            row["scenario"] = json!(outcome.scenario.name);
            row["library"] = json!(name);
            row["slice_cycles_per_s"] =
                tally.samples.iter().map(|sample| json!(sample.rate)).collect();
            row["tasks"] = json!(outcome.scenario.tasks);
            row["processes"] = json!(outcome.scenario.processes.max(1));
            row["rate_over_base"] = Ratio::of(&tally.samples, base).json();
            rows.push(row);
        }
    }
    Value::Array(rows)
}

pub(crate) fn waits_json(waits: &[WaitResult]) -> Value {
    let row = |WaitResult { scenario, library, cost }: &WaitResult| match cost {
        Ok(cost) => json!({
            "scenario": scenario,
            "library": library,
            "still_waiting": cost.waiting,
            "seconds": cost.lasted.as_secs_f64(),
            "client_cores": cost.cores(),
            "voluntary_switches_per_s": cost.switches_per_s(),
            "commands_per_s_and_node": cost.commands_per_s(),
            "node_cores": cost.node_cores(),
        }),
        Err(error) => json!({ "scenario": scenario, "library": library, "error": error }),
    };
    waits.iter().map(row).collect()
}
