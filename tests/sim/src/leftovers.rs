//! Keys, tasks and connections that remain after a client was closed or its process was killed.

use crate::network::Connection;
use crate::process::Process;
use crate::rule::Rule;
use crate::shared::Core;
use crate::trace::note;
use crate::world::World;
use quorlock_test::internals::Phase;
use std::sync::atomic::Ordering;

impl World {
    /// Checks that every release was delivered after the end of all faults. Skips the check while a
    /// task holds a lock.
    pub(crate) fn check_delivered(&mut self) {
        let is_held = (0..self.hosts.len()).any(|process| self.holds_leases(process));
        if !self.scenario.mode.keeps_all_data() || is_held {
            return;
        }
        let core = self.shared.lock();
        // The last release may be in transit.
        let was_released_lately = core.now
            < core.released_at + core.network_quality.longest_delay + 2 * core.node_timeout;
        if core.cool_down_until.is_some() || was_released_lately || self.has_left_lately(&core) {
            return;
        }
        let found = (0..core.nodes.len()).find_map(|node| {
            let key = core.lock_keys(node).next()?;
            Some(format!("{key} remains on n{node}"))
        });
        drop(core);
        self.checker.state().check(Rule::Delivered, found.is_none(), || found.unwrap_or_default());
    }

    fn holds_leases(&self, process: usize) -> bool {
        let client = self.hosts[process].redlock.as_ref();
        client.is_some_and(|client| quorlock_test::pending_work(client).leases > 0)
    }

    /// Returns true if a lock may be held for long although all tasks of the scenario have ended:
    /// its key belongs to an ended runtime, or a task that was moved to another runtime holds it.
    pub(crate) fn may_be_held_for_long(&self) -> bool {
        let is_moved = |(process, it): (usize, &Process)| {
            (it.shut_down.is_some() && !it.is_dead).then_some(process)
        };
        let core = self.shared.lock();
        let has_left = self.has_left_lately(&core);
        let moved: Vec<_> = core.processes.iter().enumerate().filter_map(is_moved).collect();
        drop(core);
        has_left || moved.into_iter().any(|process| self.holds_leases(process))
    }

    /// Returns true if keys of an ended process or runtime may still exist. A killed process
    /// releases no locks. Neither does a simulated client whose only runtime was shut down, because
    /// the library's own runtime is not simulated. Backward steps of a node's clock lengthen the
    /// life of its keys.
    fn has_left_lately(&self, core: &Core) -> bool {
        let longest = self.scenario.longest_key() + self.scenario.steps();
        core.processes.iter().any(|it| {
            let shut_down = it.shut_down.filter(|_| it.has_others);
            it.died.max(shut_down).is_some_and(|at| at + longest > core.now)
        })
    }

    pub(crate) fn check_leftovers(&mut self) {
        let core = self.shared.lock();
        let mut found = Vec::new();
        let rests = core.cool_down_until.is_some_and(|until| core.now < until);
        let is_met = !rests && !self.has_left_lately(&core);
        let rules =
            [Rule::NoTasks, Rule::NoAlarms].into_iter().chain(is_met.then_some(Rule::NoKeys));
        rules.for_each(|rule| self.checker.state().met(rule));
        for node in 0..core.nodes.len() {
            let left = core.lock_keys(node).filter(|_| is_met);
            found.extend(left.map(|key| (Rule::NoKeys, format!("{key} remains on n{node}"))));
            let alive = |connection: &&Connection| {
                connection.node == node && connection.end.phase == Phase::Open
            };
            let open = core.connections.iter().filter(alive).count();
            if open > 0 {
                found.push((Rule::NoTasks, format!("{open} connections to n{node} remain")));
            }
        }
        for (process, it) in core.processes.iter().enumerate() {
            if it.is_dead {
                continue;
            }
            let tasks = it.runtime_states.tasks.load(Ordering::Relaxed);
            if tasks > 0 {
                found.push((Rule::NoTasks, format!("{tasks} tasks of p{process} remain")));
            }
            // Without a runtime, the process cannot close its client.
            let has_runtime = self.hosts[process].executors.iter().any(Option::is_some);
            if it.alarms() > 0 && has_runtime {
                found
                    .push((Rule::NoAlarms, format!("{} alarms of p{process} remain", it.alarms())));
            }
        }
        drop(core);
        for (rule, how) in found {
            self.checker.state().violated(rule, how);
        }
    }

    /// Kills a process immediately. Data that the process has already written may still arrive. If
    /// `is_silent` is true, peers are not notified.
    pub(crate) fn kill(&mut self, process: usize, is_silent: bool) {
        let wakers: Vec<_> = {
            let mut core = self.shared.lock();
            if core.processes[process].is_dead {
                return;
            }
            note!(core, "p{process} is killed");
            core.processes[process].is_dead = true;
            core.processes[process].died = Some(core.now);
            let of_it = |(_, it): &(usize, &Connection)| it.process == process;
            let ids: Vec<_> =
                core.connections.iter().enumerate().filter(of_it).map(|(id, _)| id).collect();
            ids.into_iter().map(|id| core.abandon(id, is_silent)).collect()
        };
        drop(wakers);
        self.checker.state().remove_leases_of(process);
        let host = &mut self.hosts[process];
        let executors = std::mem::take(&mut host.executors);
        let runtime_states = self.shared.lock().processes[process].runtime_states.clone();
        runtime_states.close(executors);
        drop(host.redlock.take());
    }

    pub(crate) fn shut_down(&mut self, process: usize, runtime: usize) {
        let executors = &mut self.hosts[process].executors;
        let is_pinned = self.scenario.processes[process].is_pinned && runtime == 0;
        let runtime_states = self.shared.lock().processes[process].runtime_states.clone();
        let is_last = executors.iter().flatten().count() < 2;
        if is_pinned || is_last && !runtime_states.is_unpolled(runtime) {
            return;
        }
        let Some(executor) = executors.get_mut(runtime).and_then(Option::take) else { return };
        {
            let core = &mut *self.shared.lock();
            note!(core, "p{process} shuts its runtime {runtime} down");
            core.processes[process].shut_down = Some(core.now);
        }
        runtime_states.set_alive(runtime, false);
        runtime_states.close(executor);
        runtime_states.mark_all_woken();
    }
}
