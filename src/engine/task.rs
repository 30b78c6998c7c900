//! The task of one node: its start, its end, and its replacement if its runtime is late to run it.

use super::io::NodeIo;
use super::shared::{Engine, State};
use crate::node::NoRuntime;
use crate::protocol::{NodeId, Time};
use crate::sync::{contain, lock};
use crate::time::Ring;
use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use tokio::runtime::{Handle, Id};

/// Takes turns for the node until the client is closed. Its drop hands the node to another task.
struct NodeTask {
    engine: Arc<Engine>,
    node: NodeId,
    generation: u64,
}

impl NodeTask {
    fn start(self, runtime: &Handle) {
        let engine = self.engine.clone();
        let task = poll_fn(move |cx| {
            let Self { engine, node, generation } = &self;
            let io = &engine.nodes[node.index()];
            let is_over = !io.register(*generation, cx.waker())
                || io.take_turn(engine, cx, Some(*generation));
            if is_over { Poll::Ready(()) } else { Poll::Pending }
        });
        runtime.spawn(engine.environment().task(task));
    }
}

impl Drop for NodeTask {
    fn drop(&mut self) {
        self.engine.handle_task_end(self.node, self.generation);
    }
}

impl State {
    fn woken_at(&self, io: &NodeIo) -> Option<Time> {
        self.served_by[io.node.index()]?;
        io.woken_at()
    }

    /// Returns when to check for late tasks next, and the callers to wake if a task has to be replaced at `now`.
    pub(super) fn check_tasks(
        &mut self,
        nodes: &[NodeIo],
        now: Time,
    ) -> (Option<Time>, Option<Vec<Waker>>) {
        let Some(woken_at) = nodes.iter().filter_map(|io| self.woken_at(io)).min() else {
            return (None, None);
        };
        let (next, is_late) = self.lateness.check(woken_at, now);
        (Some(next), is_late.then(|| self.take_wakers()))
    }
}

impl Engine {
    /// Starts the tasks that are missing, on the pinned runtime or the current one, and replaces those that another
    /// runtime is late to run.
    pub(crate) fn ensure_tasks(&self) -> Result<(), NoRuntime> {
        let is_missing = self.unserved.load(Ordering::Acquire) > 0;
        if !(is_missing || self.is_late.load(Ordering::Acquire)) || !self.is_usable() {
            return Ok(());
        }
        let runtime = match self.pool.runtime() {
            // There are tasks elsewhere.
            Err(_) if !is_missing => return Ok(()),
            runtime => runtime?,
        };
        self.end_late_tasks(runtime.id());
        let Some(this) = self.this.upgrade() else { return Ok(()) };
        let mut started = Vec::new();
        {
            let mut state = lock(&self.state);
            if state.is_shut_down {
                return Err(NoRuntime::Absent);
            }
            let now = self.now();
            if state.alarm.is_none() && !state.coordinator.is_closed() {
                let ring: Weak<dyn Ring> = self.this.clone();
                state.alarm = Some(self.environment().clock.set_alarm(now, ring));
                state.alarm_at = now;
            }
            for io in &self.nodes {
                let serves = &mut state.served_by[io.node.index()];
                if serves.is_none() {
                    *serves = Some(runtime.id());
                    self.unserved.fetch_sub(1, Ordering::AcqRel);
                    let (engine, generation) = (this.clone(), io.handle_start(now));
                    started.push(NodeTask { engine, node: io.node, generation });
                }
            }
            if !started.is_empty() && std::mem::replace(&mut state.has_started, true) {
                state.coordinator.handle_new_runtime(now);
            }
        }
        let nodes: Vec<_> = started.iter().map(|task| task.node).collect();
        for task in started {
            task.start(&runtime);
        }
        let mut state = lock(&self.state);
        if nodes.iter().all(|node| state.served_by[node.index()].is_some()) {
            return Ok(());
        }
        // A runtime that was shut down drops tasks at once.
        state.is_shut_down = self.pool.is_pinned();
        Err(NoRuntime::Absent)
    }

    /// The task of `node` has ended, and its connections with the runtime. All callers run, and one of them starts
    /// another task.
    fn handle_task_end(&self, node: NodeId, generation: u64) {
        let io = &self.nodes[node.index()];
        let mut connections = lock(&io.connections);
        if !io.is_current(generation) {
            return;
        }
        let ended = std::mem::take(&mut *connections);
        drop(connections);
        drop(ended);
        let is_pinned = self.pool.is_pinned();
        let wakers = self.with_state(None, |state, now| {
            if !io.is_current(generation) {
                return None;
            }
            self.end_task(state, io, !is_pinned, now);
            Some(state.take_wakers())
        });
        if let Some(Some(wakers)) = wakers {
            self.wake_callers(wakers);
        }
    }
    /// Ends the tasks of other runtimes than `here` that are late to run one. Their streams are closed in the next turn.
    fn end_late_tasks(&self, here: Id) {
        if !self.is_late.load(Ordering::Acquire) {
            return;
        }
        self.with_state(None, |state, now| {
            let is_late = |at: Time| state.lateness.late_at(at) <= now;
            let late = self.nodes.iter().filter(|io| state.woken_at(io).is_some_and(is_late));
            let runtimes: Vec<_> = late.map(|io| state.served_by[io.node.index()]).collect();
            if runtimes.contains(&Some(here)) {
                return;
            }
            self.is_late.store(false, Ordering::Release);
            for io in &self.nodes {
                let runtime = state.served_by[io.node.index()];
                if runtime.is_some() && runtimes.contains(&runtime) {
                    self.end_task(state, io, true, now);
                    state.lateness.handle_replacement(now);
                }
            }
        });
    }

    /// The task of a node has ended or is replaced, and another one `is_next`.
    fn end_task(&self, state: &mut State, io: &NodeIo, is_next: bool, now: Time) {
        state.replaced.extend(io.handle_end());
        state.served_by[io.node.index()] = None;
        self.unserved.fetch_add(1, Ordering::AcqRel);
        state.coordinator.handle_runtime_end(io.node, is_next, now);
    }

    /// All callers run. One of them starts the missing tasks, and replaces the late ones of other runtimes.
    pub(super) fn wake_callers(&self, wakers: Vec<Waker>) {
        contain(|| self.leases.wake_all());
        for waker in wakers {
            contain(|| waker.wake());
        }
    }
}
