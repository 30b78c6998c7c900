//! The task of one node, on a runtime.

use super::shared::Engine;
use crate::node::NoRuntime;
use crate::protocol::NodeId;
use crate::sync::{contain, lock};
use crate::time::Ring;
use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::Poll;
use tokio::runtime::Handle;

/// Takes turns for the node until the client is closed. Its drop hands the node to another task.
struct NodeTask {
    engine: Arc<Engine>,
    node: NodeId,
}

/// Starts the task of `node`.
fn start(engine: &Arc<Engine>, node: NodeId, runtime: &Handle) {
    let task = NodeTask { engine: engine.clone(), node };
    let task = poll_fn(move |cx| {
        let NodeTask { engine, node } = &task;
        let io = &engine.nodes[node.index()];
        io.register(cx.waker());
        if io.take_turn(engine, cx, true) { Poll::Ready(()) } else { Poll::Pending }
    });
    runtime.spawn(engine.environment().task(task));
}

impl Drop for NodeTask {
    fn drop(&mut self) {
        self.engine.handle_task_end(self.node);
    }
}

impl Engine {
    /// Starts the tasks that are missing, on the pinned runtime or the current one.
    pub(crate) fn ensure_tasks(&self) -> Result<(), NoRuntime> {
        if self.unserved.load(Ordering::Acquire) == 0 || !self.is_usable() {
            return Ok(());
        }
        let missing: Vec<_> = {
            let state = lock(&self.state);
            let served = state.is_served.iter().enumerate().filter(|(_, is_served)| !**is_served);
            served.map(|(node, _)| NodeId::new(node)).collect()
        };
        if missing.is_empty() {
            return Ok(());
        }
        let runtime = self.pool.runtime()?;
        if lock(&self.state).is_shut_down {
            return Err(NoRuntime::Absent);
        }
        let Some(this) = self.this.upgrade() else { return Ok(()) };
        let mut started = Vec::new();
        {
            let mut state = lock(&self.state);
            if state.alarm.is_none() && !state.coordinator.is_closed() {
                let ring: Weak<dyn Ring> = self.this.clone();
                let now = self.now();
                state.alarm = Some(self.environment().clock.set_alarm(now, ring));
                state.alarm_at = now;
            }
            for node in missing {
                if !std::mem::replace(&mut state.is_served[node.index()], true) {
                    self.unserved.fetch_sub(1, Ordering::AcqRel);
                    started.push(node);
                }
            }
            if !started.is_empty() && std::mem::replace(&mut state.has_started, true) {
                let now = self.now();
                state.coordinator.handle_new_runtime(now);
            }
        }
        for node in &started {
            start(&this, *node, &runtime);
        }
        let mut state = lock(&self.state);
        if started.iter().all(|node| state.is_served[node.index()]) {
            return Ok(());
        }
        // A runtime that was shut down drops tasks at once.
        state.is_shut_down = self.pool.is_pinned();
        Err(NoRuntime::Absent)
    }

    /// The task of `node` has ended, and its connections with the runtime. All callers run, and one of them starts
    /// another task.
    pub(super) fn handle_task_end(&self, node: NodeId) {
        let connections = std::mem::take(&mut *lock(&self.nodes[node.index()].connections));
        drop(connections);
        let is_pinned = self.pool.is_pinned();
        let wakers = self.with_state(None, |state, now| {
            state.is_served[node.index()] = false;
            self.unserved.fetch_add(1, Ordering::AcqRel);
            state.coordinator.handle_runtime_end(node, !is_pinned, now);
            state.take_wakers()
        });
        contain(|| self.leases.wake_all());
        for waker in wakers.unwrap_or_default() {
            contain(|| waker.wake());
        }
    }
}
