//! What goes wrong with whole nodes, links and clients: planned at the start of a run.

use crate::clock::{Instant, MS, S};
use crate::counts::Count;
use crate::dice::Dice;
use crate::event::Event;
use crate::mode::{Guarded, Mode, Outside, Stepped};
use crate::mutation::Mutation;
use crate::scenario::Scenario;
use crate::steps::{plan_rolls, plan_steps};
use crate::trace::note;
use crate::world::{World, index, small};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The node does nothing; what comes waits.
    Pause { node: usize },
    /// The node's process ends.
    Crash { node: usize, forgets: bool },
    /// The node's clock is set.
    Jump { node: usize, by: i64 },
    /// The same, once all clients have read it since it was set the other way.
    Step { node: usize, by: i64 },
    /// The node's key goes before its time.
    Fade { node: usize },
    /// The client's wall clock is set.
    Wall { client: usize, by_us: i64 },
    /// Nothing passes between the two.
    Block { client: usize, node: usize },
    /// The client's process is stopped: its clock goes on.
    Stop { client: usize },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    pub(crate) at: Instant,
    pub(crate) lasting: Instant,
    pub(crate) fault: Fault,
}

/// The faults of a run. Each kind is off in many runs, so that others show what they do alone.
pub(crate) fn plan(scenario: &Scenario, dice: &mut Dice) -> Vec<Planned> {
    if scenario.mode == Mode::Guarded(Guarded::Fresh) {
        return plan_calm(scenario, dice);
    }
    let mut plan = Vec::new();
    let ttl = scenario.ttl_ns();
    // Half of the runs spare a majority of the nodes. The others are worse than what is promised,
    // and safe all the same.
    let spared = if dice.chance(500) { scenario.nodes / 2 + 1 } else { 0 };
    let faulty = scenario.nodes - spared;
    let fencing = scenario.fencing;
    for kind in 0..if fencing.is_looked_at { 8 } else { 6 } {
        if dice.chance(500) {
            continue;
        }
        for _ in 0..dice.between(1, 7) {
            let node = dice.index(faulty.max(1));
            let fault = match kind {
                0..=3 if faulty == 0 => continue,
                0 => Fault::Pause { node },
                1 => Fault::Crash { node, forgets: false },
                // Who looks at tokens says below which counters are lost.
                2 if fencing.is_looked_at => continue,
                2 => Fault::Crash { node, forgets: true },
                // Back: keys stand longer. Once a key has expired it stays so.
                3 if scenario.mode != Mode::Liveness
                    && !scenario.mode.has_steps()
                    && scenario.mode.is_promised()
                    && dice.chance(300) =>
                {
                    Fault::Jump { node, by: -signed(dice.of_any_size(MS, ttl)) }
                }
                3 | 6 if scenario.mode == Mode::Tokens => {
                    let node = dice.index(scenario.nodes);
                    if kind == 6 {
                        Fault::Fade { node }
                    } else {
                        Fault::Jump { node, by: signed(dice.of_any_size(MS, 2 * ttl)) }
                    }
                }
                7 if fencing.wall_jump_us > 0 => {
                    let most = 2 * fencing.wall_jump_us;
                    let by_us = signed(dice.below(most)) - signed(fencing.wall_jump_us);
                    Fault::Wall { client: dice.index(scenario.clients), by_us }
                }
                4 => Fault::Block { client: dice.index(scenario.clients), node },
                5 => Fault::Stop { client: dice.index(scenario.clients) },
                _ => continue,
            };
            plan.push(timed(fault, scenario, dice));
        }
    }
    outside(scenario, dice, &mut plan);
    plan_steps(scenario, dice, &mut plan);
    plan_rolls(scenario, dice, &mut plan);
    let (count, most) = groups(scenario, dice);
    if scenario.mode == Mode::Guarded(Guarded::Minority) {
        plan.retain(|planned| !matches!(planned.fault, Fault::Crash { node, .. } if node >= most));
    }
    for _ in 0..count {
        restart_group(most, scenario, dice, &mut plan);
    }
    if scenario.mode == Mode::Liveness {
        plan.retain(|planned| planned.at + planned.lasting < scenario.horizon);
    }
    plan
}

/// At most one node hangs.
fn plan_calm(scenario: &Scenario, dice: &mut Dice) -> Vec<Planned> {
    let fault = Fault::Pause { node: dice.index(scenario.nodes) };
    let hangs = scenario.nodes > 2 && dice.chance(300);
    let at = dice.below(scenario.longest_ttl());
    let lasting = scenario.horizon;
    hangs.then_some(Planned { at, lasting, fault }).into_iter().collect()
}

fn timed(fault: Fault, scenario: &Scenario, dice: &mut Dice) -> Planned {
    let ttl = scenario.ttl_ns();
    let at = dice.below(scenario.horizon);
    let lasting = dice.of_any_size(ttl / 64, 3 * ttl);
    let lasting = match fault {
        Fault::Crash { forgets: true, .. } if scenario.has(Mutation::RestartAtOnce) => MS,
        // Until all that it has ever granted must be gone.
        Fault::Crash { forgets: true, .. } => {
            scenario.longest_ttl() / 50 * 51 + 20 * MS + lasting / 4
        }
        _ => lasting,
    };
    Planned { at, lasting, fault }
}

/// What the mode adds to the faults inside the promise.
fn outside(scenario: &Scenario, dice: &mut Dice, plan: &mut Vec<Planned>) {
    let Mode::Outside(outside) = scenario.mode else { return };
    for _ in 0..dice.between(1, 7) {
        let node = dice.index(scenario.nodes);
        let fault = match outside {
            Outside::Amnesia => Fault::Crash { node, forgets: true },
            Outside::Jump => {
                Fault::Jump { node, by: signed(dice.of_any_size(MS, scenario.longest_ttl())) }
            }
            Outside::Standstill => {
                let fault = Fault::Stop { client: dice.index(scenario.clients) };
                plan.push(timed(fault, scenario, dice));
                continue;
            }
            _ => return,
        };
        let at = dice.below(scenario.horizon);
        plan.push(Planned { at, lasting: MS, fault });
    }
}

/// How often groups of nodes forget all and restart, all at once; and how many nodes at most.
fn groups(scenario: &Scenario, dice: &mut Dice) -> (u64, usize) {
    let nodes = scenario.nodes;
    let minority = (nodes - 1) / 2;
    match scenario.mode {
        Mode::Guarded(Guarded::Minority) => (dice.between(1, 5), minority),
        Mode::Guarded(Guarded::Rolling) => (0, 0),
        Mode::Guarded(_)
        | Mode::Stepped(Stepped::Restarts)
        | Mode::Outside(Outside::Unguarded | Outside::Newcomers) => (dice.between(1, 4), nodes),
        Mode::Tokens if dice.chance(300) => (dice.between(1, 4), nodes),
        Mode::Wiped(wiped) => (1, if wiped.is_majority { nodes - minority } else { minority }),
        _ => (0, 0),
    }
}

fn restart_group(most: usize, scenario: &Scenario, dice: &mut Dice, plan: &mut Vec<Planned>) {
    if most == 0 {
        return;
    }
    let nodes = scenario.nodes;
    let is_fixed = scenario.mode == Mode::Guarded(Guarded::Minority);
    let first = if is_fixed { 0 } else { dice.index(nodes) };
    let is_whole = matches!(scenario.mode, Mode::Wiped(_)) || dice.chance(500);
    let count = if is_whole { most } else { 1 + dice.index(most) };
    let mut at = dice.below(scenario.horizon);
    if scenario.mode.restarts_groups() && dice.chance(500) {
        // Just before a second begins: whole seconds are then the most too many.
        at = at - at % S + S - dice.of_any_size(4 * MS, 512 * MS);
    }
    for node in (first..first + count).map(|node| node % nodes) {
        let fault = Fault::Crash { node, forgets: true };
        plan.push(Planned { at: at + dice.below(MS), lasting: MS, fault });
    }
}

pub(crate) fn signed(by: u64) -> i64 {
    i64::try_from(by).expect("a short time")
}

impl World {
    pub(crate) fn handle_fault(&mut self, place: u32) {
        let Planned { fault, lasting, .. } = self.faults[index(place)];
        if self.hinders_meeting(fault) {
            self.queue.push(self.now + 50 * MS, Event::Fault { index: place });
            return;
        }
        let until = self.now + lasting;
        note!(self, "fault: {fault:?} for {} ms", lasting / MS);
        match fault {
            Fault::Pause { node } => self.pause_node(node, until),
            Fault::Crash { node, forgets } => self.crash_node(node, forgets, until),
            Fault::Jump { node, by } => {
                self.counts.add(if by < 0 { Count::JumpsBack } else { Count::JumpsForth });
                self.jump_node(node, by);
            }
            Fault::Step { node, by } => {
                if !self.step_node(node, by) {
                    self.queue.push(self.now + 50 * MS, Event::Fault { index: place });
                }
            }
            Fault::Fade { node } => self.fade(node),
            Fault::Wall { client, by_us } => {
                self.counts.add(Count::WallJumps);
                self.clients[client].wall.jump(by_us);
            }
            Fault::Block { client, node } => {
                self.counts.add(Count::Blocks);
                let link = &mut self.clients[client].links[node];
                link.blocked_until = link.blocked_until.max(until);
            }
            Fault::Stop { client } => self.stop_client(client, until),
        }
    }

    /// Stops a client's process, if it runs.
    pub(crate) fn stop_client(&mut self, client: usize, until: Instant) {
        if self.clients[client].is_stopped {
            return;
        }
        self.counts.add(Count::ClientPauses);
        if self.clients[client].holding.is_some() {
            self.counts.add(Count::HolderPauses);
        }
        self.clients[client].is_stopped = true;
        self.clients[client].stopped_at = self.now;
        self.queue.push(until, Event::Continue { client: small(client) });
    }

    /// All that came while the client was stopped happens now: in the order in which it came, or
    /// its timers first, or its replies first.
    pub(crate) fn continue_client(&mut self, client: usize) {
        let it = &mut self.clients[client];
        it.is_stopped = false;
        let mut waiting = std::mem::take(&mut it.backlog);
        let stands_still = self.scenario.mode == Mode::Outside(Outside::Standstill);
        if stands_still || self.scenario.has(Mutation::SleepingClock) {
            self.set_back(client);
        }
        match self.dice.below(3) {
            0 => waiting.sort_by_key(|event| !event.is_timer()),
            1 => waiting.sort_by_key(|event| event.is_timer()),
            _ => {}
        }
        note!(self, "c{client} goes on: {} events", waiting.len());
        for event in waiting {
            self.handle(event);
        }
    }

    /// The client's clock has not counted its pause.
    fn set_back(&mut self, client: usize) {
        let it = &mut self.clients[client];
        it.clock.jump(self.now, -signed(self.now - it.stopped_at));
        let now = it.clock.time(self.now);
        let valid_until = it.holding.as_ref().and_then(|it| it.renewal.valid_until(now));
        if let Some(valid_until) = valid_until {
            self.believe(client, valid_until);
        }
    }
}
