//! What goes wrong with whole nodes, links and processes: planned at the start of a run.

use crate::clock::{Instant, MS};
use crate::dice::Dice;
use crate::scenario::{FaultPlan, Scenario};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The node does nothing; what comes waits.
    Hang { node: usize },
    /// The node's process ends, and starts again with all its keys. `is_silent`: nobody is told.
    Crash { node: usize, is_silent: bool },
    /// The node answers everything with an error.
    Trouble { node: usize, kind: usize },
    /// Nothing passes between the two.
    Block { process: usize, node: usize },
    /// Nothing passes between the process and anybody.
    Cut { process: usize },
    /// The process is stopped: its clock goes on.
    Stop { process: usize },
    /// One runtime of the process is held up by a task that blocks.
    Hold { process: usize, runtime: usize },
    /// The process ends.
    Kill { process: usize, is_silent: bool },
    /// The process ends one of its runtimes, and goes on with another.
    Shutdown { process: usize, runtime: usize },
}

/// The faults of a run. Each kind is off in many runs, so that others show what they do alone.
pub(crate) fn draw_faults(scenario: &Scenario, dice: &mut Dice) -> Vec<FaultPlan> {
    let mut plan = Vec::new();
    let (ttl, horizon) = (scenario.ttl(), scenario.times.horizon);
    let spared = if dice.chance(500) { scenario.nodes / 2 + 1 } else { 0 };
    let faulty = scenario.nodes - spared;
    let mut id = 0;
    for kind in 0..9 {
        if dice.chance(550) {
            continue;
        }
        for _ in 0..dice.between(1, 5) {
            let node = dice.index(faulty.max(1));
            let process = dice.index(scenario.processes.len());
            let runtime = dice.index(scenario.processes[process].runtimes);
            let fault = match kind {
                0..=2 if faulty == 0 => continue,
                0 => Fault::Hang { node },
                1 => Fault::Crash { node, is_silent: dice.chance(300) },
                2 => Fault::Trouble { node, kind: dice.index(8) },
                3 => Fault::Block { process, node: dice.index(scenario.nodes) },
                4 => Fault::Cut { process },
                5 => Fault::Stop { process },
                6 => Fault::Hold { process, runtime },
                7 if process > 0 => Fault::Kill { process, is_silent: dice.chance(300) },
                8 if scenario.processes[process].runtimes > 1 => {
                    Fault::Shutdown { process, runtime }
                }
                _ => continue,
            };
            let lasting = draw_lasting(scenario, ttl, dice);
            id += 1;
            plan.push(FaultPlan { id, at: dice.below(horizon), lasting, fault });
        }
    }
    plan
}

fn draw_lasting(scenario: &Scenario, ttl: Instant, dice: &mut Dice) -> Instant {
    let timeout = crate::process::nanos(scenario.times.node_timeout);
    match dice.below(3) {
        0 => dice.of_any_size(MS / 10, timeout.max(MS)),
        1 => dice.of_any_size(timeout, 4 * timeout),
        _ => dice.of_any_size(ttl / 10, 2 * ttl),
    }
}
