//! Planned faults of nodes, links and processes.

use crate::clock::{Instant, MS};
use crate::closing::Closing;
use crate::dice::Dice;
use crate::mode::{Mode, Outside};
use crate::restarts::{plan_groups, plan_rolls};
use crate::scenario::{FaultPlan, Scenario};
use crate::single::plan_single;
use crate::steps::plan_steps;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The node stalls and does not read the packets that it receives.
    Stall { node: usize },
    /// The node's process ends and later restarts. If `forgets` is true, it restarts without its
    /// keys. If `is_silent` is true, peers are not notified of the end.
    Crash { node: usize, is_silent: bool, forgets: bool },
    /// The master behind an address becomes a replica. Later, the replica becomes a master again,
    /// or the address leads to the server `standby`. If `is_empty` is true, the new master has no
    /// keys. If `cuts` is true, the old master closes its connections.
    Failover { node: usize, standby: Option<usize>, is_empty: bool, cuts: bool },
    /// The node closes each connection that sends a command with the key of an affected lock.
    Close { node: usize, closing: Closing },
    /// Another client sets the key of a lock to a large value.
    Enlarge { node: usize, which: usize, kilobytes: usize },
    /// The node sends `kilobytes` of pushes over each connection.
    Flood { node: usize, kilobytes: usize },
    /// The node replies to some or all commands with an error, which depends on `kind`.
    Trouble { node: usize, kind: usize },
    /// The node's clock steps by `by` nanoseconds.
    Jump { node: usize, by: i64 },
    /// The node's clock steps by `by` nanoseconds. A step that clients could miss is postponed
    /// until all of them have read the clock since the previous step. Clients could miss a step
    /// that is short or has the opposite direction of the previous step.
    Step { node: usize, by: i64 },
    /// The node loses a lock's key before the key expires.
    LoseKey { node: usize, resource: usize },
    /// The node loses the fencing counter of a lock before the counter expires.
    LoseCounter { node: usize, resource: usize },
    /// The node loses its cached scripts.
    ForgetScripts { node: usize },
    /// The node is flushed.
    Flush { node: usize },
    /// The process's wall clock steps by `by` nanoseconds.
    Wall { process: usize, by: i64 },
    /// No packet passes between the process and the node.
    Block { process: usize, node: usize },
    /// No packet passes between the process and any node.
    Isolate { process: usize },
    /// The process is stopped. Its clock continues, except in the mode [`Outside::Standstill`].
    Stop { process: usize },
    /// A blocking task occupies one runtime of the process.
    BlockRuntime { process: usize, runtime: usize },
    /// The process ends. If `is_silent` is true, peers are not notified.
    Kill { process: usize, is_silent: bool },
    /// The process shuts down one of its runtimes and continues with another.
    Shutdown { process: usize, runtime: usize },
}

pub(crate) struct Planner<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) dice: &'a mut Dice,
    pub(crate) plan: Vec<FaultPlan>,
}

/// Draws the faults of a run. Each kind is absent from many runs, so that a run shows the effects
/// of only a few kinds.
pub(crate) fn draw_faults(scenario: &Scenario, dice: &mut Dice) -> Vec<FaultPlan> {
    let mut planner = Planner { scenario, dice, plan: Vec::new() };
    if scenario.mode.is_new_deployment() {
        planner.plan_start();
    } else if scenario.mode == Mode::Outages {
        planner.plan_outages();
    } else if scenario.mode == Mode::ManyWaiters {
        return Vec::new();
    } else if scenario.mode.single().is_some() {
        plan_single(&mut planner);
    } else {
        planner.plan_common();
        planner.plan_outside();
        plan_steps(&mut planner);
        plan_rolls(&mut planner);
        plan_groups(&mut planner);
    }
    let mut plan = planner.plan;
    if scenario.mode == Mode::Quiet {
        plan.retain(|it| {
            matches!(
                it.fault,
                Fault::Shutdown { .. } | Fault::BlockRuntime { .. } | Fault::Stop { .. }
            )
        });
    }
    plan.iter_mut().enumerate().for_each(|(place, fault)| fault.id = place + 1);
    plan
}

impl Planner<'_> {
    pub(crate) fn add(&mut self, at: Instant, lasting: Instant, fault: Fault) {
        self.plan.push(FaultPlan { id: 0, at, lasting, fault });
    }

    pub(crate) fn moment(&mut self) -> Instant {
        let Scenario { times, calm, .. } = self.scenario;
        self.dice.between(*calm, times.horizon)
    }

    fn plan_start(&mut self) {
        let longest = 2 * self.scenario.ttl();
        for (node, starts) in self.scenario.node_starts.clone().into_iter().enumerate() {
            let fault = Fault::Crash { node, is_silent: false, forgets: true };
            self.add(0, starts, fault);
        }
        if self.scenario.nodes > 2 && self.dice.chance(300) {
            let at = self.dice.below(longest);
            let node = self.dice.index(self.scenario.nodes);
            self.add(at, self.scenario.times.horizon, Fault::Stall { node });
        }
    }

    /// Plans outages of all nodes. Each outage lasts for at most a quarter of the ttl. The next
    /// outage starts only after leases have had time to be renewed.
    fn plan_outages(&mut self) {
        let (ttl, nodes) = (self.scenario.ttl(), self.scenario.nodes);
        let mut at = 0;
        loop {
            at += ttl + self.dice.below(ttl);
            let lasting = self.dice.log_uniform(ttl / 100, ttl / 4);
            if at + lasting > self.scenario.times.horizon {
                return;
            }
            let kind = self.dice.below(3);
            for node in 0..nodes {
                match kind {
                    0 => self.add(at, lasting, Fault::Stall { node }),
                    1 => self.add(at, lasting, Fault::Trouble { node, kind: 1 + node }),
                    _ => {}
                }
            }
            for process in 0..self.scenario.processes.len() {
                if kind == 2 {
                    self.add(at, lasting, Fault::Isolate { process });
                }
            }
        }
    }

    /// Plans faults of random kinds, times and durations. Modes that test only some kinds use
    /// separate plans instead.
    fn plan_common(&mut self) {
        let scenario = self.scenario;
        // In half of the runs, a majority of the nodes has no faults. The other runs exceed the
        // liveness guarantee, but safety must hold.
        let spared = if self.dice.chance(500) { scenario.nodes / 2 + 1 } else { 0 };
        let faulty = scenario.nodes - spared;
        for kind in 0..16 {
            if self.dice.chance(550) {
                continue;
            }
            for _ in 0..self.dice.between(1, 5) {
                let Some(fault) = self.draw_fault(kind, faulty) else { continue };
                let at = self.moment();
                let lasting = self.draw_lasting();
                let forgets = matches!(fault, Fault::Crash { forgets: true, .. });
                // A node that loses its keys returns after all keys that it granted have expired.
                let delay = if forgets { scenario.longest_key() } else { 0 };
                if delay == 0 || at + delay + lasting < scenario.times.horizon {
                    self.add(at, delay + lasting, fault);
                }
            }
        }
    }

    fn draw_fault(&mut self, kind: u32, faulty: usize) -> Option<Fault> {
        let (scenario, dice) = (self.scenario, &mut *self.dice);
        let mode = scenario.mode;
        if kind < 5 && faulty == 0 {
            return None;
        }
        let node = dice.index(faulty.max(1));
        let process = dice.index(scenario.processes.len());
        let runtime = dice.index(scenario.processes[process].runtimes);
        let is_silent = dice.chance(300);
        let is_witness = scenario.witness == Some(node);
        Some(match kind {
            0 => Fault::Stall { node },
            1 if !is_witness => Fault::Crash { node, is_silent, forgets: false },
            // In modes about tokens, other faults delete counters.
            2 if !mode.is_about_tokens() && !is_witness => {
                Fault::Crash { node, is_silent, forgets: true }
            }
            // If nodes do not reply to `TIME`, the simulation cannot know when clients read clocks.
            3 if !mode.has_steps() && !is_witness => Fault::Trouble { node, kind: dice.index(8) },
            // A backward step lengthens the life of keys.
            4 if mode.is_exclusive() && !mode.has_steps() => {
                Fault::Jump { node, by: -signed(dice.log_uniform(MS, scenario.ttl())) }
            }
            5 => Fault::Block { process, node: dice.index(scenario.nodes) },
            6 => Fault::Isolate { process },
            7 => Fault::Stop { process },
            8 => Fault::BlockRuntime { process, runtime },
            9 if process > 0 => Fault::Kill { process, is_silent },
            10 if scenario.processes[process].runtimes > 1 => Fault::Shutdown { process, runtime },
            11..=13 if mode == Mode::Tokens => {
                let node = dice.index(scenario.nodes);
                let resource = dice.index(scenario.resources);
                match kind {
                    11 => Fault::Jump { node, by: draw_signed(dice, MS, 2 * scenario.ttl()) },
                    12 => Fault::LoseKey { node, resource },
                    _ if !scenario.forgets_counters => Fault::LoseKey { node, resource },
                    _ if dice.chance(500) => Fault::LoseCounter { node, resource },
                    _ => Fault::Flush { node },
                }
            }
            14 if scenario.fencing.wall_jump > 0 => {
                Fault::Wall { process, by: draw_signed(dice, MS, scenario.fencing.wall_jump) }
            }
            15 => Fault::ForgetScripts { node: dice.index(scenario.nodes) },
            _ => return None,
        })
    }

    /// Plans the faults that the mode adds to the common faults. They are outside the guarantee.
    fn plan_outside(&mut self) {
        let Mode::Outside(outside) = self.scenario.mode else { return };
        for _ in 0..self.dice.between(1, 7) {
            let node = self.dice.index(self.scenario.nodes);
            let fault = match outside {
                Outside::Amnesia if self.dice.chance(300) => Fault::Flush { node },
                Outside::Amnesia => Fault::Crash { node, is_silent: false, forgets: true },
                Outside::Jump => {
                    let by = self.dice.log_uniform(MS, 2 * self.scenario.ttl());
                    Fault::Jump { node, by: signed(by) }
                }
                Outside::Standstill => {
                    let process = self.dice.index(self.scenario.processes.len());
                    let (at, lasting) = (self.moment(), self.draw_lasting());
                    self.add(at, lasting, Fault::Stop { process });
                    continue;
                }
                _ => return,
            };
            let at = self.moment();
            self.add(at, MS, fault);
        }
    }

    fn draw_lasting(&mut self) -> Instant {
        let ttl = self.scenario.ttl();
        let timeout = crate::process::nanos(self.scenario.times.node_timeout);
        match self.dice.below(3) {
            0 => self.dice.log_uniform(MS / 10, timeout.max(MS)),
            1 => self.dice.log_uniform(timeout, 4 * timeout),
            _ => self.dice.log_uniform(ttl / 10, 2 * ttl),
        }
    }
}

/// Draws a duration from `least` to `most`, and a random sign.
fn draw_signed(dice: &mut Dice, least: Instant, most: Instant) -> i64 {
    let by = signed(dice.log_uniform(least, most));
    if dice.chance(500) { by } else { -by }
}

pub(crate) fn signed(by: u64) -> i64 {
    i64::try_from(by).expect("a short time")
}
