//! What is left of processes that are killed or closed.

use crate::network::{ClientEnd, Connection};
use crate::rule::Rule;
use crate::trace::note;
use crate::world::World;
use std::sync::atomic::Ordering;

impl World {
    /// Nothing may be left.
    pub(crate) fn check_remains(&mut self) {
        let core = self.shared.lock();
        let mut found = Vec::new();
        for (node, host) in core.nodes.iter().enumerate() {
            let wall = core.node_wall(node);
            for (key, _) in host.server.keys(wall) {
                let key = String::from_utf8_lossy(key).into_owned();
                if !key.contains("#quorlock:") {
                    found.push((Rule::NoKeys, format!("{key} is left on n{node}")));
                }
            }
            let alive = |connection: &&Connection| {
                connection.node == node && connection.client == ClientEnd::Open
            };
            let open = core.connections.iter().filter(alive).count();
            if open > 0 {
                found.push((Rule::NoTasks, format!("{open} connections to n{node} are left")));
            }
        }
        for (process, it) in core.processes.iter().enumerate() {
            if it.is_dead {
                continue;
            }
            let tasks = it.beat.tasks.load(Ordering::Relaxed);
            if tasks > 0 {
                found.push((Rule::NoTasks, format!("{tasks} tasks of p{process} are left")));
            }
            if it.alarms() > 0 {
                found.push((
                    Rule::NoAlarms,
                    format!("{} alarms of p{process} are left", it.alarms()),
                ));
            }
        }
        drop(core);
        for (rule, how) in found {
            self.checker.books().broken(rule, how);
        }
    }

    /// A process ends at once: what it has written may still arrive.
    pub(crate) fn kill(&mut self, process: usize, is_silent: bool) {
        let wakers: Vec<_> = {
            let mut core = self.shared.lock();
            if core.processes[process].is_dead {
                return;
            }
            note!(core, "p{process} is killed");
            core.processes[process].is_dead = true;
            let of_it = |(_, it): &(usize, &Connection)| it.process == process;
            let ids: Vec<_> =
                core.connections.iter().enumerate().filter(of_it).map(|(id, _)| id).collect();
            ids.into_iter().map(|id| core.abandon(id, is_silent)).collect()
        };
        drop(wakers);
        self.checker.books().bury(process);
        let host = &mut self.hosts[process];
        let executors = std::mem::take(&mut host.executors);
        let beat = self.shared.lock().processes[process].beat.clone();
        beat.close(executors);
        drop(host.redlock.take());
    }

    /// One runtime of a process is shut down.
    pub(crate) fn shut_down(&mut self, process: usize, runtime: usize) {
        let executors = &mut self.hosts[process].executors;
        let is_pinned = self.scenario.processes[process].is_pinned && runtime == 0;
        let beat = self.shared.lock().processes[process].beat.clone();
        let is_last = executors.iter().flatten().count() < 2;
        if is_pinned || is_last && !beat.is_condemned(runtime) {
            return;
        }
        let Some(executor) = executors.get_mut(runtime).and_then(Option::take) else { return };
        {
            let core = &mut *self.shared.lock();
            note!(core, "p{process} shuts its runtime {runtime} down");
        }
        beat.set_alive(runtime, false);
        beat.close(executor);
        beat.note_all();
    }
}
