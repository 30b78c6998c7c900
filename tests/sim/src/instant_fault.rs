//! Applies faults that have no duration, and postpones faults that a run cannot handle yet.

use crate::clock::MS;
use crate::event::WorldEvent;
use crate::fault::Fault;
use crate::fencing::counter;
use crate::shared::Core;
use crate::trace::note;
use crate::worker::name;
use crate::world::World;
use quorlock_test::internals::Server;

impl Core {
    /// Deletes the key of a random lock on `node` with the probability
    /// `network_quality.key_losses`. Called before the node executes a command.
    pub(crate) fn maybe_lose_key(&mut self, node: usize) {
        if self.is_calm()
            || self.network_quality.key_losses == 0
            || !self.dice.chance(self.network_quality.key_losses)
        {
            return;
        }
        let wall = self.node_wall(node);
        let keys = self.nodes[node].server.keys(wall);
        let locks: Vec<_> = keys
            .map(|(key, _)| String::from_utf8_lossy(key).into_owned())
            .filter(|key| !key.contains('#'))
            .collect();
        if !locks.is_empty() {
            let key = &locks[self.dice.index(locks.len())];
            note!(self, "{key} is lost on n{node}");
            self.act_on(node, |server, wall| server.delete(key.as_bytes(), wall));
        }
    }

    /// Applies a fault that has no duration. Returns false for other faults.
    fn apply_at_once(&mut self, fault: Fault) -> bool {
        match fault {
            Fault::Jump { node, by } | Fault::Step { node, by } => self.step_node(node, by),
            Fault::Close { node, closing } => {
                note!(self, "n{node} closes connections: {closing:?}");
                self.nodes[node].closing = Some(closing);
            }
            Fault::Enlarge { node, which, kilobytes } => self.enlarge(node, which, kilobytes),
            Fault::Flood { node, kilobytes } => self.flood(node, kilobytes),
            Fault::LoseKey { node, resource } => {
                note!(self, "r{resource} is lost on n{node}");
                let key = name(resource);
                self.act_on(node, |server, wall| server.delete(key.as_bytes(), wall));
            }
            Fault::LoseCounter { node, resource } => {
                note!(self, "the counter of r{resource} is lost on n{node}");
                self.nodes[node].wiped = Some(self.now);
                let key = counter(&name(resource), "token");
                self.act_on(node, |server, wall| server.delete(key.as_bytes(), wall));
            }
            Fault::ForgetScripts { node } => {
                note!(self, "the scripts of n{node} are flushed");
                self.act_on(node, |server, wall| {
                    let session = server.connect();
                    let command = b"*2\r\n$6\r\nSCRIPT\r\n$5\r\nFLUSH\r\n";
                    let outputs = server.receive(session, command, wall);
                    server.disconnect(session);
                    outputs
                });
            }
            Fault::Flush { node } => {
                note!(self, "n{node} is flushed");
                self.nodes[node].wiped = Some(self.now);
                self.nodes[node].restarted = Some(self.now);
                self.act_on(node, Server::flush);
            }
            Fault::Wall { process, by } => {
                note!(self, "the wall clock of p{process} is set by {} ms", by / 1_000_000);
                let now = self.now;
                self.processes[process].wall.step(now, by);
            }
            _ => return false,
        }
        true
    }

    /// Returns true if the fault must be postponed. This is the case if a client could miss the
    /// fault's effect, or could not reach a node that the guarantee assumes to be reachable.
    fn must_wait(&self, fault: Fault) -> bool {
        let any = |is: &dyn Fn(usize) -> bool| (0..self.processes.len()).any(is);
        let hinders = |process: usize| {
            !self.processes[process].is_dead && self.has_unreached_witness(process)
        };
        match fault {
            Fault::Step { node, by } => {
                let slow = 2 * (self.network_quality.longest_delay + self.network_quality.delay.1);
                self.nodes[node].last_step.is_some_and(|(stepped, was_ahead)| {
                    let is_hidden = was_ahead != (by > 0) || by.unsigned_abs() < slow;
                    is_hidden && !self.is_known_by_all(node, stepped)
                })
            }
            Fault::Stall { node } => self.readings.witness == Some(node) && any(&hinders),
            Fault::Block { process, .. }
            | Fault::Isolate { process }
            | Fault::Stop { process }
            | Fault::BlockRuntime { process, .. } => hinders(process),
            _ => false,
        }
    }

    /// Returns true if a process that started now could not reach the witness. The witness is a
    /// node that every new process must be able to reach.
    pub(crate) fn must_start_later(&self, process: usize) -> bool {
        self.readings.witness.is_some_and(|node| {
            self.nodes[node].is_stopped
                || self.blocked.contains(&(process, node))
                || self.processes[process].is_stopped
                || self.processes[process].held.iter().any(|until| *until > self.now)
        })
    }
}

impl World {
    /// Applies a fault that has no duration, or postpones a fault that must wait. Returns false if
    /// the caller must start the fault.
    pub(crate) fn begin_instant_fault(&mut self, index: usize, fault: Fault) -> bool {
        let core = &mut *self.shared.lock();
        if core.must_wait(fault) {
            let at = core.now + 50 * MS;
            core.events.plan(at, WorldEvent::Fault { index, begins: true });
            return true;
        }
        core.apply_at_once(fault)
    }

    /// Asserts that the initial processes have reached all nodes. Processes that have ended are
    /// ignored.
    pub(crate) fn check_all_nodes_reached(&self) {
        let core = self.shared.lock();
        for (process, plan) in self.scenario.processes.iter().enumerate() {
            let has_reached = |node| core.readings.has_reached(process, node);
            let is_reached = (0..self.scenario.nodes).all(has_reached);
            assert!(
                plan.starts > 0 || core.processes[process].is_dead || is_reached,
                "defect of the simulation: p{process} has not reached all nodes by {}",
                core.now
            );
        }
    }
}
