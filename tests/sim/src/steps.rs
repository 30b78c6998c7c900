//! Plans of clock steps of nodes.

use crate::clock::{Instant, MS, S};
use crate::fault::{Fault, Planner, signed};
use crate::mode::{Mode, Outside};

/// Length of the longest step.
const LONGEST: Instant = 10 * S;

/// Plans clock steps, in modes that have them.
pub(crate) fn plan_steps(planner: &mut Planner<'_>) {
    if planner.scenario.mode.has_steps() {
        for _ in 0..planner.dice.between(1, 6) {
            step_some(planner);
        }
    }
}

/// Plans a step of one clock, or of several at once or one after the other.
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
        signed(planner.dice.of_any_size(planner.scenario.least_step, LONGEST))
    };
    let is_back = !is_new && dice.chance(300);
    // The opposite step follows as soon as all clients know of the first one.
    let returns = (!is_new && dice.chance(300)).then(|| dice.of_any_size(MS, 2 * S));
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
