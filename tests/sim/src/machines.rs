//! Creates the machines of the nodes, as configured by the scenario.

use crate::clock::{MachineClock, S};
use crate::dice::Dice;
use crate::fencing::EPOCH;
use crate::mode::{Mode, Outside};
use crate::node::NodeHost;
use crate::process::nanos;
use crate::scenario::Scenario;
use crate::shared::Core;
use quorlock::RestartGuard;
use quorlock_test::internals::{Config, Fsync, Version};

pub(crate) fn new_node(scenario: &Scenario, node: usize, rate: u64, dice: &mut Dice) -> NodeHost {
    let version = match dice.below(4) {
        0 => Version::redis(8, 4, 0),
        1 => Version::valkey(9, 1, 2),
        _ => Version::redis(7, 0, 15),
    };
    let mut config =
        Config { run_id: format!("{node:020x}{:020x}", 0), version, ..Config::default() };
    if !scenario.pushes {
        config.forbidden.insert("client|tracking".to_owned());
    }
    if !scenario.permits_kill {
        config.forbidden.insert("client|kill".to_owned());
        config.forbidden.insert("delifeq".to_owned());
        config.forbidden.insert("msetex".to_owned());
    }
    if scenario.forbids_info {
        config.forbidden.insert("info".to_owned());
    }
    if scenario.forbids_time {
        config.forbidden.insert("time".to_owned());
    }
    let is_durable = scenario.durable & 1 << node != 0;
    if is_durable {
        config.appendonly = true;
        config.appendfsync = Fsync::Always;
    }
    // The seconds of NTP-synchronised clocks start at the same time.
    let ahead = if scenario.mode.restarts_groups() { 0 } else { dice.below(2 * S) };
    let mut host = NodeHost::new(config, MachineClock::new(EPOCH + ahead, rate));
    host.is_durable = is_durable;
    host
}

impl Core {
    pub(crate) fn prepare(&mut self, scenario: &Scenario, dice: &mut Dice) {
        self.calm = scenario.calm;
        if scenario.guard != RestartGuard::Off && scenario.mode.single().is_none() {
            // The quarantine period is at least the longest ttl. Clocks deviate by up to 1 %.
            self.shortest_quarantine = nanos(scenario.max_ttl()) / 50 * 49;
        }
        self.pushes = scenario.pushes;
        self.records_tenures = scenario.fencing.is_on;
        self.token_ttl = nanos(scenario.token_ttl);
        self.trusts_wall_clocks = scenario.fencing.trusts_wall_clocks();
        self.clocks_stop = scenario.mode == Mode::Outside(Outside::Standstill);
        self.readings.witness = scenario.witness;
        self.readings.witness_delay = scenario.witness_delay;
        self.commands_left = scenario.most_commands();
        self.add_standbys(scenario, dice);
        self.fill_counters(&scenario.fencing, scenario.resources, dice);
    }
}
