//! Clocks of nodes that step, and nodes that restart one after the other: planned at the start of a run.

use crate::clock::{Instant, MS, S};
use crate::dice::Dice;
use crate::fault::{Fault, Planned, signed};
use crate::mode::{Guarded, Mode, Outside};
use crate::scenario::Scenario;

/// The longest step.
const LONGEST: Instant = 10 * S;

/// Steps of nodes' clocks, where the mode is about them.
pub(crate) fn plan_steps(scenario: &Scenario, dice: &mut Dice, plan: &mut Vec<Planned>) {
    match scenario.mode {
        mode if mode.has_steps() => {
            for _ in 0..dice.between(1, 6) {
                step_some(scenario, dice, plan);
            }
        }
        _ => {}
    }
}

/// One clock steps, or several at a time, or one after the other.
fn step_some(scenario: &Scenario, dice: &mut Dice, plan: &mut Vec<Planned>) {
    let nodes = scenario.nodes;
    let is_new = scenario.mode == Mode::Outside(Outside::StepNewcomers);
    let count = match dice.below(4) {
        _ if is_new => dice.between(nodes as u64 / 2 + 1, nodes as u64 + 1),
        0 | 1 => 1,
        2 => nodes as u64,
        _ => dice.between(1, nodes as u64 + 1),
    };
    let apart = if is_new { 0 } else { dice.pick(&[0, 0, 100 * MS, 3 * S]) };
    let is_alike = dice.chance(500);
    let length = |dice: &mut Dice| dice.of_any_size(scenario.least_step, LONGEST);
    let by = length(dice);
    let is_back = !is_new && dice.chance(300);
    // As soon as everybody knows, it goes the other way.
    let returns = (!is_new && dice.chance(300)).then(|| dice.of_any_size(MS, 2 * S));
    let first = dice.index(nodes);
    let mut at = dice.below(scenario.horizon);
    for place in 0..count {
        let node = (first + usize::try_from(place).expect("few")) % nodes;
        let by = if is_alike { by } else { length(dice) };
        let by = if is_back { -signed(by) } else { signed(by) };
        plan.push(Planned { at, lasting: 0, fault: Fault::Step { node, by } });
        if let Some(later) = returns {
            let by = if is_alike { -by } else { -by.signum() * signed(length(dice)) };
            let fault = Fault::Step { node, by };
            plan.push(Planned { at: at + later, lasting: 0, fault });
        }
        at += if apart > 0 { dice.below(apart) } else { 0 };
    }
}

/// Nodes that restart empty, one after the other: up to all but one.
pub(crate) fn plan_rolls(scenario: &Scenario, dice: &mut Dice, plan: &mut Vec<Planned>) {
    let is_silent = scenario.mode == Mode::Outside(Outside::SilentOld);
    if scenario.nodes < 2 || !is_silent && scenario.mode != Mode::Guarded(Guarded::Rolling) {
        return;
    }
    let nodes = scenario.nodes;
    let spared = scenario.witness.unwrap_or_else(|| dice.index(nodes));
    plan.retain(|planned| !matches!(planned.fault, Fault::Crash { node, .. } if node == spared));
    for _ in 0..dice.between(1, 4) {
        let count = if dice.chance(500) { nodes - 1 } else { 1 + dice.index(nodes - 1) };
        let first = dice.index(nodes - 1);
        let apart = dice.pick(&[10 * MS, 300 * MS, 3 * S]);
        let mut at = dice.below(scenario.horizon);
        for place in 0..count {
            let node = (spared + 1 + (first + place) % (nodes - 1)) % nodes;
            let fault = Fault::Crash { node, forgets: true };
            plan.push(Planned { at, lasting: MS, fault });
            at += dice.below(apart);
        }
        if is_silent {
            let at = at.saturating_sub(dice.below(scenario.ttl_ns()));
            let lasting = dice.of_any_size(scenario.ttl_ns() / 4, 4 * scenario.ttl_ns());
            plan.push(Planned { at, lasting, fault: Fault::Pause { node: spared } });
        }
    }
}

/// When the nodes of a new deployment start: the first and the last of them up to the longest ttl apart.
pub(crate) fn starts(mode: Mode, nodes: usize, longest: Instant, dice: &mut Dice) -> Vec<Instant> {
    if mode != Mode::Guarded(Guarded::Fresh) {
        return Vec::new();
    }
    (0..nodes).map(|_| dice.between(MS, longest / 4 * 3)).collect()
}
