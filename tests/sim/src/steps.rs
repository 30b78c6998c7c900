//! Plans steps of the nodes' clocks.

use crate::clock::{Instant, MS, S};
use crate::fault::{Fault, Planner, signed};
use crate::mode::{Mode, Outside};

const LONGEST: Instant = 10 * S;

pub(crate) fn plan_steps(planner: &mut Planner<'_>) {
    if planner.scenario.mode.has_steps() {
        for _ in 0..planner.dice.between(1, 6) {
            step_some(planner);
        }
    }
}

/// Plans a step of one node's clock, or steps of several clocks, either simultaneously or one after
/// the other.
fn step_some(planner: &mut Planner<'_>) {
    let scenario = planner.scenario;
    let nodes = scenario.nodes;
    let mut at = planner.moment();
    let dice = &mut *planner.dice;
    let is_new = scenario.mode == Mode::Outside(Outside::StepNewcomers);
    let count = match dice.below(4) {
        _ if is_new => dice.between(nodes as u64 / 2 + 1, nodes as u64 + 1),
        0 | 1 => 1,
        2 => nodes as u64,
        _ => dice.between(1, nodes as u64 + 1),
    };
    let apart = if is_new { 0 } else { dice.pick(&[0, 0, 100 * MS, 3 * S]) };
    let is_alike = dice.chance(500);
    let length = |planner: &mut Planner<'_>| {
        signed(planner.dice.log_uniform(planner.scenario.least_step, LONGEST))
    };
    let is_back = !is_new && dice.chance(300);
    // The opposite step follows as soon as all clients know of the first step.
    let returns = (!is_new && dice.chance(300)).then(|| dice.log_uniform(MS, 2 * S));
    let first = dice.index(nodes);
    let common = length(planner);
    for place in 0..count {
        let node = (first + usize::try_from(place).expect("few")) % nodes;
        let by = if is_alike { common } else { length(planner) };
        let by = if is_back { -by } else { by };
        planner.add(at, 0, Fault::Step { node, by });
        if let Some(later) = returns {
            let by = if is_alike { -by } else { -by.signum() * length(planner) };
            planner.add(at + later, 0, Fault::Step { node, by });
        }
        at += planner.dice.below(apart);
    }
}
