//! Sizes and fault plans of runs with one kind of node fault.

use crate::clock::{Instant, MS, S};
use crate::closing::Closing;
use crate::dice::Dice;
use crate::fault::{Fault, Planner};
use crate::large::LARGE;
use crate::machines::new_node;
use crate::mode::{Mode, Single};
use crate::scenario::Scenario;
use crate::shared::Core;

impl Single {
    /// Draws the ttl in milliseconds, the number of nodes, and the ratio of the ttl to the node
    /// timeout.
    pub(crate) fn draw_sizes(self, dice: &mut Dice) -> (u64, usize, u64) {
        let ttl_ms = match self {
            Self::Failover => dice.pick(&[1_000, 3_000, 10_000]),
            // The ttl is much longer than a delivery, because an expiry must not hide a lost
            // release.
            Self::ClosingCommand => return (60_000, dice.pick(&[1, 3, 3, 5]), 600),
            Self::LargeValue => return (10_000, dice.pick(&[1, 3, 3, 5]), 100),
            Self::Panic => return (dice.pick(&[1_000, 3_000]), dice.pick(&[1, 3, 3, 5]), 20),
        };
        (ttl_ms, dice.pick(&[3, 3, 5, 5, 7]), dice.pick(&[20, 100]))
    }

    /// Returns the maximum number of connections that one runtime of a client may open to a node
    /// per minute. The library's pauses between connections grow to 2-4 s for a replica, and to
    /// 0.5-1 s for a server that closes connections.
    pub(crate) fn most_opened(self) -> u32 {
        if self == Self::Failover { 45 } else { 150 }
    }

    /// Returns how long faults occur, counted from the end of the initial period without faults.
    pub(crate) fn lasting(self) -> Instant {
        match self {
            Self::Failover => 300 * S,
            Self::ClosingCommand => 120 * S,
            Self::LargeValue | Self::Panic => 40 * S,
        }
    }
}

pub(crate) fn plan_single(planner: &mut Planner<'_>) {
    match planner.scenario.mode.single() {
        Some(Single::Failover) => plan_failovers(planner),
        Some(Single::ClosingCommand) => plan_closing(planner),
        Some(Single::LargeValue) => plan_large_values(planner),
        Some(Single::Panic) => crate::panics::plan_floods(planner),
        None => {}
    }
}

/// Plans failovers of a fixed minority of the nodes. Each of these nodes fails over once or twice.
fn plan_failovers(planner: &mut Planner<'_>) {
    let scenario = planner.scenario;
    let minority = (scenario.nodes - 1) / 2;
    let count = 1 + planner.dice.index(minority);
    for node in 0..count {
        let mut at = scenario.calm;
        for _ in 0..planner.dice.between(1, 3) {
            at += planner.dice.log_uniform(100 * MS, 60 * S);
            let standby = planner.dice.chance(600).then_some(planner.plan.len());
            // A master is restored only after the keys from before its demotion have expired.
            let least = if standby.is_some() { MS } else { scenario.longest_key().max(20 * S) };
            let lasting = planner.dice.log_uniform(least, 200 * S);
            if at + lasting < scenario.calm + Single::Failover.lasting() {
                let (is_empty, cuts) = (planner.dice.chance(500), planner.dice.chance(300));
                planner.add(at, lasting, Fault::Failover { node, standby, is_empty, cuts });
            }
            at += lasting;
        }
    }
}

fn plan_closing(planner: &mut Planner<'_>) {
    let at = planner.dice.log_uniform(MS, 10 * S);
    let closing = Closing {
        spares_set: planner.dice.chance(400),
        reports: planner.dice.chance(500),
        resets: planner.dice.chance(500),
    };
    for node in 0..planner.draw_count() {
        planner.add(at, 0, Fault::Close { node, closing });
    }
}

fn plan_large_values(planner: &mut Planner<'_>) {
    for _ in 0..planner.dice.between(1, 5) {
        let (at, which) = (planner.moment(), planner.dice.index(LARGE));
        let kilobytes = planner.dice.pick(&[64, 1_024, 1_024, 4_096]);
        for node in 0..planner.draw_count() {
            planner.add(at, 0, Fault::Enlarge { node, which, kilobytes });
        }
    }
}

impl Planner<'_> {
    /// Draws the number of nodes that have the fault: either the largest minority, or any number of
    /// nodes, at random.
    fn draw_count(&mut self) -> usize {
        let nodes = self.scenario.nodes;
        let minority = (nodes - 1) / 2;
        if minority > 0 && self.dice.chance(300) { minority } else { 1 + self.dice.index(nodes) }
    }
}

impl Core {
    /// Adds one standby server for each fault that may promote a standby. No address leads to a
    /// standby at first.
    pub(crate) fn add_standbys(&mut self, scenario: &Scenario, dice: &mut Dice) {
        self.single = scenario.mode.single();
        self.quarantine_period = scenario.quarantine_period();
        self.addresses = (0..scenario.nodes).collect();
        if scenario.mode == Mode::Single(Single::Failover) {
            // A standby's number is the position of its fault in the complete plan, even if the run
            // omits other faults.
            let count = scenario.faults.iter().map(|fault| fault.id).max().unwrap_or_default();
            for standby in 0..count {
                let host = new_node(scenario, scenario.nodes + standby, 1_000_000, dice);
                self.nodes.push(host);
            }
        }
    }
}
