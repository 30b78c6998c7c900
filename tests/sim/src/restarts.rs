//! Plans restarts without data, either in groups or one after the other, and the start of late
//! clients.

use crate::clock::{Instant, MS, S};
use crate::dice::Dice;
use crate::fault::{Fault, Planner};
use crate::mode::{Guarded, Mode, Outside, Single, Stepped};
use crate::scenario::{FaultPlan, Scenario};
use quorlock::RestartGuard;

impl Mode {
    pub(crate) fn guard(self) -> RestartGuard {
        match self {
            Self::Guarded(Guarded::Strict) => RestartGuard::Strict,
            Self::Guarded(_)
            | Self::Stepped(Stepped::Restarts)
            | Self::Single(Single::Failover)
            | Self::Outside(Outside::Newcomers | Outside::SilentOld) => RestartGuard::Observed,
            _ => RestartGuard::Off,
        }
    }
}

pub(crate) fn plan_groups(planner: &mut Planner<'_>) {
    let (mode, nodes) = (planner.scenario.mode, planner.scenario.nodes);
    let minority = (nodes - 1) / 2;
    let (count, most) = match mode {
        Mode::Guarded(Guarded::Minority) => (planner.dice.between(1, 5), minority),
        Mode::Guarded(Guarded::Rolling) => (0, 0),
        Mode::Guarded(_)
        | Mode::Stepped(Stepped::Restarts)
        | Mode::Outside(Outside::Unguarded | Outside::Newcomers) => {
            (planner.dice.between(1, 4), nodes)
        }
        Mode::Tokens if planner.scenario.forgets_counters => (planner.dice.between(1, 4), nodes),
        Mode::Wiped(wiped) => (1, if wiped.is_majority { nodes - minority } else { minority }),
        _ => (0, 0),
    };
    if mode == Mode::Guarded(Guarded::Minority) {
        let is_spared =
            |it: &FaultPlan| !matches!(it.fault, Fault::Crash { node, .. } if node >= most);
        planner.plan.retain(is_spared);
    }
    for _ in 0..count {
        restart_group(most, planner);
    }
}

fn restart_group(most: usize, planner: &mut Planner<'_>) {
    if most == 0 {
        return;
    }
    let (mode, nodes) = (planner.scenario.mode, planner.scenario.nodes);
    let mut at = planner.moment();
    let is_fixed = mode == Mode::Guarded(Guarded::Minority);
    let first = if is_fixed { 0 } else { planner.dice.index(nodes) };
    let takes_all = matches!(mode, Mode::Wiped(_)) || planner.dice.chance(500);
    let count = if takes_all { most } else { 1 + planner.dice.index(most) };
    if mode.restarts_groups() && planner.dice.chance(500) {
        // The rounding error of uptimes in whole seconds is largest just before a second ends.
        at = at - at % S + S - planner.dice.log_uniform(4 * MS, 512 * MS);
        at = at.max(planner.scenario.calm);
    }
    for node in (first..first + count).map(|node| node % nodes) {
        let fault = Fault::Crash { node, is_silent: planner.dice.chance(300), forgets: true };
        let at = at + planner.dice.below(MS);
        planner.add(at, MS, fault);
    }
}

/// Plans restarts without data, one node after the other. At least one node never restarts.
pub(crate) fn plan_rolls(planner: &mut Planner<'_>) {
    let (mode, nodes) = (planner.scenario.mode, planner.scenario.nodes);
    let is_silent = mode == Mode::Outside(Outside::SilentOld);
    if nodes < 2 || !is_silent && !mode.is_rolling() {
        return;
    }
    let spared = planner.scenario.witness.unwrap_or_else(|| planner.dice.index(nodes));
    let is_other =
        |it: &FaultPlan| !matches!(it.fault, Fault::Crash { node, .. } if node == spared);
    planner.plan.retain(is_other);
    for _ in 0..planner.dice.between(1, 4) {
        let count =
            if planner.dice.chance(500) { nodes - 1 } else { 1 + planner.dice.index(nodes - 1) };
        let first = planner.dice.index(nodes - 1);
        let apart = planner.dice.pick(&[10 * MS, 300 * MS, 3 * S]);
        let mut at = planner.moment();
        for place in 0..count {
            let node = (spared + 1 + (first + place) % (nodes - 1)) % nodes;
            let is_silent = planner.dice.chance(300);
            planner.add(at, MS, Fault::Crash { node, is_silent, forgets: true });
            at += planner.dice.below(apart);
        }
        if is_silent {
            let ttl = planner.scenario.ttl();
            let at = at.saturating_sub(planner.dice.below(ttl)).max(planner.scenario.calm);
            let lasting = planner.dice.log_uniform(ttl / 4, 4 * ttl);
            planner.add(at, lasting, Fault::Stall { node: spared });
        }
    }
}

/// Draws the start times of the nodes in a new deployment. The first and the last start are at most
/// the longest ttl apart.
pub(crate) fn draw_starts(
    mode: Mode,
    nodes: usize,
    longest: Instant,
    dice: &mut Dice,
) -> Vec<Instant> {
    if !mode.is_new_deployment() {
        return Vec::new();
    }
    (0..nodes).map(|_| dice.between(MS, longest / 4 * 3)).collect()
}

/// Draws the start time of a late client. The client often starts soon after a restart or a clock
/// step.
pub(crate) fn draw_arrival(scenario: &Scenario, dice: &mut Dice) -> Instant {
    let (calm, horizon) = (scenario.calm, scenario.times.horizon);
    if scenario.mode.is_new_deployment() {
        let first = scenario.node_starts.iter().min().copied().unwrap_or_default();
        return 1 + dice.below(first + 2 * scenario.ttl() / 4 * 3);
    }
    let is_step = scenario.mode == Mode::Outside(Outside::StepNewcomers);
    let is_cause = |it: &&FaultPlan| match it.fault {
        Fault::Crash { .. } => !is_step,
        Fault::Step { .. } => is_step,
        _ => false,
    };
    let causes: Vec<_> = scenario.faults.iter().filter(is_cause).map(|it| it.at).collect();
    if causes.is_empty() || dice.chance(300) {
        return dice.between(calm, calm + (horizon - calm) / 4 * 3);
    }
    let at = dice.pick(&causes) + dice.log_uniform(4 * MS, scenario.ttl());
    at.clamp(1, horizon - 1)
}
