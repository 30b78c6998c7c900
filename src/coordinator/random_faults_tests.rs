//! Random faults for the runs of `random_tests`, and the invariants that each run must satisfy.

use super::random_tests::{Run, UnderWay};
use super::world_calls_tests::{Held, keys};
use super::world_tests::{HostState, World, ms};
use crate::protocol::{LeaseStatus, Time, Ttl};
use crate::wire::Counters;
use quorlock_test::Trouble;
use rand::RngExt;
use std::collections::BTreeMap;
use std::time::Duration;

impl Run {
    pub(super) fn close_one(&mut self) {
        let Some(process) = self.any_running().filter(|_| self.closed.len() < 6) else { return };
        let limit = Duration::from_millis(self.random.random_range(0..2_000));
        let (coordinator, now) = self.world.coordinator(process);
        coordinator.handle_close(limit, now);
        let is_held = |held: &Held| matches!(held.shared.status(now), LeaseStatus::Held { .. });
        let mut of_process = self.held.iter().filter(|held| held.process == process);
        assert!(!of_process.any(is_held), "a lease was not released");
        self.held.retain(|held| held.process != process);
        self.closed.push((process, Some(now.after(limit))));
        self.world.process();
    }

    pub(super) fn freeze_one(&mut self) {
        let Some(process) = self.any_running() else { return };
        let duration = Duration::from_millis(self.random.random_range(1..2_500));
        let duration = if self.random.random() { duration / 20 } else { duration };
        self.world.processes[process].frozen_until = self.world.now.after(duration);
    }

    pub(super) fn hold_up(&mut self) {
        let Some(process) = self.any_running() else { return };
        let delay = Duration::from_millis(self.random.random_range(10..6_000));
        let of_all = self.random.random();
        for connection in self.world.connections(process) {
            if of_all || self.random.random_ratio(1, 3) {
                self.world.hold_up(process, connection, delay);
            }
        }
    }

    pub(super) fn survey(&mut self) {
        let Some(process) = self.any_running() else { return };
        let names = self.names();
        let is_forced = !self.is_safe && self.random.random();
        let (coordinator, now) = self.world.coordinator(process);
        let call = if is_forced {
            coordinator.handle_force_release(keys(names), now)
        } else {
            coordinator.handle_status(keys(names), None, now)
        };
        if self.random.random_ratio(1, 4) {
            self.run(ms(1));
            if !self.world.is_frozen(process) {
                let (coordinator, now) = self.world.coordinator(process);
                coordinator.handle_cancel_call(call, now);
                return;
            }
        }
        if self.world.processes[process].coordinator.is_survey(call) {
            self.calls.push((process, call));
        }
    }

    pub(super) fn cancel_one(&mut self) {
        if !self.under_way.is_empty() {
            let place = self.random.random_range(0..self.under_way.len());
            let UnderWay { process, id, .. } = self.under_way[place];
            if self.world.is_frozen(process) {
                return;
            }
            self.under_way.swap_remove(place);
            let (coordinator, now) = self.world.coordinator(process);
            coordinator.handle_cancel(id, now);
            self.world.take_acquired(process, id);
        }
    }

    pub(super) fn extend_one(&mut self) {
        if !self.held.is_empty() {
            let held = self.held[self.random.random_range(0..self.held.len())].clone();
            if self.world.is_frozen(held.process) {
                return;
            }
            let ttl = Duration::from_millis(self.random.random_range(150..4_000));
            let (coordinator, now) = self.world.coordinator(held.process);
            let ttl = Ttl::from_duration(ttl).expect("a ttl");
            // An error means that the lease has ended.
            let call = coordinator.handle_extend(held.id, ttl, now);
            self.calls.extend(call.ok().map(|call| (held.process, call)));
        }
    }

    /// Injects a random fault into one node, or repairs the node. In a safe run, at most a minority of the nodes have
    /// lost their data or have a wrong clock at any time.
    pub(super) fn fault(&mut self) {
        let nodes = self.world.hosts.len();
        let host = self.random.random_range(0..nodes);
        let is_faulty = |world: &World, host: usize| world.hosts[host].state != HostState::Up;
        if is_faulty(&self.world, host) {
            return self.world.set_state(host, HostState::Up);
        }
        let is_few = self.faulty_nodes.is_empty() || self.faulty_nodes == [host];
        let may_mar = !self.is_safe || is_few && nodes > 2;
        match self.random.random_range(0..8) {
            0 | 1 => self.world.set_state(host, HostState::Hung),
            2 => self.world.set_state(host, HostState::Down),
            3 if may_mar => {
                self.world.restart(host);
                self.faulty_nodes = vec![host];
            }
            4 if may_mar && (self.has_steps || !self.is_safe) => {
                self.world.hosts[host].ahead_us += self.random.random_range(0..6_000_000);
                self.faulty_nodes = vec![host];
            }
            5 => {
                let troubles = [
                    Trouble::Busy,
                    Trouble::ReadOnly,
                    Trouble::OutOfMemory,
                    Trouble::Loading,
                    Trouble::Misconf,
                    Trouble::MasterDown,
                ];
                let trouble = troubles[self.random.random_range(0..troubles.len())];
                let trouble = self.world.trouble(host).is_none().then_some(trouble);
                self.world.set_trouble(host, trouble);
            }
            _ => self.cut(host),
        }
    }

    pub(super) fn cut(&mut self, host: usize) {
        self.world.cut(host);
    }

    pub(super) fn heal(&mut self) {
        for host in 0..self.world.hosts.len() {
            self.world.set_state(host, HostState::Up);
            self.world.set_trouble(host, None);
            self.world.close_on("", host);
            self.world.hosts[host].drops_commands_with = "";
        }
        // With more jitter, replies could take longer than the node timeout, and rounds would end before the replies
        // arrive.
        self.world.jitter = self.world.jitter.min(ms(5));
        for process in &mut self.world.processes {
            process.frozen_until = process.frozen_until.min(self.world.now);
        }
    }

    pub(super) fn check_token(&mut self, held: &Held, is_fenced: bool) {
        if !is_fenced || !self.is_safe || !self.world.is_valid(held) {
            return;
        }
        let claim = held.shared.claim();
        let token = claim.fence().and_then(Counters::token).expect("a token");
        for key in claim.keys().iter() {
            let last = self.tokens.insert(key.to_vec(), token).unwrap_or_default();
            assert!(token > last, "token {token} after {last}");
        }
    }

    pub(super) fn check(&self) {
        if !self.is_safe {
            return;
        }
        let now: Time = self.world.now;
        let mut holders = BTreeMap::new();
        for held in &self.held {
            if matches!(held.shared.status(now), LeaseStatus::Held { .. }) {
                for key in held.shared.claim().keys().iter() {
                    let other = holders.insert(key.clone(), held.process);
                    assert_eq!(other, None, "two holders of {key:?}: {} and another", held.process);
                }
            }
        }
    }
}
