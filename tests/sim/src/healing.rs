//! Starts and ends faults.

use crate::event::WorldEvent;
use crate::fault::Fault;
use crate::process::MOST_RUNTIMES;
use crate::trace::note;
use crate::world::World;
use quorlock_test::Trouble;

const TROUBLES: [Trouble; 6] = [
    Trouble::Busy,
    Trouble::Loading,
    Trouble::ReadOnly,
    Trouble::OutOfMemory,
    Trouble::Misconf,
    Trouble::MasterDown,
];

impl World {
    pub(crate) fn handle_fault(&mut self, index: usize, begins: bool) {
        let plan = self.scenario.faults[index];
        if begins && self.shared.lock().is_healed {
            return;
        }
        if begins && self.begin_instant_fault(index, plan.fault) {
            return;
        }
        let needs_end =
            if begins { self.begin(plan.fault, plan.lasting) } else { self.end(plan.fault) };
        if begins && needs_end {
            let mut core = self.shared.lock();
            let at = (core.now + plan.lasting).min(self.scenario.times.horizon);
            core.events.plan(at, WorldEvent::Fault { index, begins: false });
        }
    }

    /// Starts a fault. Returns true if the fault ends later.
    fn begin(&mut self, fault: Fault, lasting: u64) -> bool {
        match fault {
            Fault::Kill { process, is_silent } => {
                self.kill(process, is_silent);
                return false;
            }
            Fault::Shutdown { process, runtime } => {
                self.shut_down(process, runtime);
                return false;
            }
            _ => {}
        }
        let core = &mut *self.shared.lock();
        let now = core.now;
        match fault {
            Fault::Stall { node } if core.nodes[node].is_stopped => return false,
            Fault::Stall { node } => core.stop_node(node),
            Fault::Crash { node, .. } if core.nodes[node].is_down => return false,
            Fault::Crash { node, is_silent, .. } => core.crash(node, is_silent),
            Fault::Failover { node, cuts, .. } => return core.demote(node, cuts),
            Fault::Trouble { node, kind } => {
                let trouble = TROUBLES[kind % TROUBLES.len()];
                note!(core, "n{node} is in the state {trouble:?}");
                core.nodes[node].server.set_trouble(Some(trouble));
            }
            Fault::Block { process, node } => {
                note!(core, "p{process} and n{node} cannot exchange packets");
                core.blocked.insert((process, node));
            }
            Fault::Isolate { process } => {
                note!(core, "p{process} cannot exchange packets with any node");
                core.blocked.extend((0..core.nodes.len()).map(|node| (process, node)));
            }
            Fault::Stop { process } => {
                if core.processes[process].is_stopped {
                    return false;
                }
                note!(core, "p{process} is stopped");
                core.processes[process].is_stopped = true;
                core.record_stall(process, None, lasting);
                if core.clocks_stop {
                    core.processes[process].clock.stop(now);
                }
            }
            Fault::BlockRuntime { process, runtime } => {
                note!(core, "runtime {runtime} of p{process} is held up");
                core.processes[process].held[runtime % MOST_RUNTIMES] = now + lasting;
                core.record_stall(process, Some(runtime), lasting);
            }
            _ => return false,
        }
        true
    }

    fn end(&mut self, fault: Fault) -> bool {
        let core = &mut *self.shared.lock();
        match fault {
            Fault::Stall { node } => core.continue_node(node),
            Fault::Crash { node, forgets, .. } => core.restart(node, forgets),
            Fault::Failover { .. } => core.end_failover(fault),
            Fault::Trouble { node, .. } => {
                note!(core, "n{node} has recovered");
                core.nodes[node].server.set_trouble(None);
            }
            Fault::Block { process, node } => core.unblock(process, node),
            Fault::Isolate { process } => {
                (0..core.nodes.len()).for_each(|node| core.unblock(process, node));
            }
            Fault::Stop { process } => {
                note!(core, "p{process} continues");
                core.processes[process].is_stopped = false;
                if core.clocks_stop {
                    let now = core.now;
                    core.processes[process].clock.resume(now);
                    core.replan_alarms(process);
                }
                let mut missed = std::mem::take(&mut core.processes[process].missed);
                while !missed.is_empty() {
                    let event = missed.swap_remove(core.dice.index(missed.len()));
                    let now = core.now;
                    core.events.plan(now, event);
                }
                core.processes[process].runtime_states.mark_all_woken();
            }
            Fault::BlockRuntime { process, runtime } => {
                core.processes[process].held[runtime % MOST_RUNTIMES] = 0;
            }
            _ => {}
        }
        false
    }

    /// Ends all faults, and starts the last calls of each client.
    pub(crate) fn heal(&mut self) {
        {
            let core = &mut *self.shared.lock();
            note!(core, "all faults have ended");
            core.is_healed = true;
            core.delete_large_values();
            for node in 0..core.nodes.len() {
                core.nodes[node].server.set_trouble(None);
            }
            let blocked = std::mem::take(&mut core.blocked);
            for (process, node) in blocked {
                core.unblock(process, node);
            }
        }
        self.begin_finishing();
    }
}
