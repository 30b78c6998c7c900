//! The task of a client: its start, its end, and its replacement if its runtime is late to run it.

use super::shared::{Engine, State, Thread};
use super::turn::Turn;
use crate::node::NoRuntime;
use crate::protocol::Time;
use crate::sync::{contain, lock};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::runtime::{Handle, Id};

/// How long callers on other runtimes have the chance to start a new task after the end of a runtime.
const HAND_OVER: Duration = Duration::from_millis(20);

/// After this time, a late task whose client needs connections is replaced by one on the library's own runtime. The alarm
/// can use connections, but cannot open them.
const PATIENCE: Duration = Duration::from_secs(1);

/// The task is late.
pub(super) struct Late {
    /// All callers: one of them can replace the task.
    pub(super) callers: Vec<Waker>,
    /// True if the task has to be replaced also without a caller.
    pub(super) needs_runtime: bool,
}

/// Takes turns until the client is closed. Its drop hands the client to another task.
pub(super) struct ClientTask {
    engine: Arc<Engine>,
    generation: u64,
    runtime: Handle,
}

impl ClientTask {
    fn start(self) {
        let (engine, runtime) = (self.engine.clone(), self.runtime.clone());
        runtime.spawn(engine.environment().task(poll_fn(move |cx| self.poll(cx))));
    }

    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Self { engine, generation, runtime } = self;
        let turn = Turn { generation: *generation, runtime };
        let is_over = !engine.task.register(*generation, cx.waker())
            || engine.take_turn(cx, Some(&turn)) == Some(true);
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for ClientTask {
    fn drop(&mut self) {
        self.engine.handle_task_end(self.generation);
    }
}

impl Engine {
    pub(super) fn is_served(&self) -> bool {
        self.is_served.load(Ordering::SeqCst)
    }

    /// When the task was woken, if it has not run since.
    fn woken_at(&self, state: &State) -> Option<Time> {
        state.served_by?;
        self.task.woken_at()
    }

    pub(super) fn is_task_late(&self, state: &State, now: Time) -> bool {
        self.woken_at(state).is_some_and(|at| now >= state.lateness.late_at(at))
    }

    /// Returns when to check next whether the task is late, and what to do if it has to be replaced at `now`.
    pub(super) fn check_task(&self, state: &mut State, now: Time) -> (Option<Time>, Option<Late>) {
        let Some(woken_at) = self.woken_at(state) else { return (None, None) };
        let (next, is_late) = state.lateness.check(woken_at, now);
        let needs_runtime = now.since(woken_at) >= PATIENCE
            && state.coordinator.needs_connection()
            && state.coordinator.has_work();
        let late = is_late.then(|| Late { callers: state.take_wakers(), needs_runtime });
        (Some(next), late)
    }

    /// Starts the task if it is missing, on the pinned runtime or the current one, or replaces it if another runtime is
    /// late to run it.
    pub(crate) fn ensure_task(&self) -> Result<(), NoRuntime> {
        let is_missing = !self.is_served();
        if !(is_missing || self.is_late.load(Ordering::Acquire)) || !self.is_usable() {
            return Ok(());
        }
        let runtime = match self.pool.runtime() {
            // There is a task elsewhere.
            Err(_) if !is_missing => return Ok(()),
            runtime => runtime?,
        };
        self.end_late_task(runtime.id());
        let Some(task) = self.next_task(runtime)? else { return Ok(()) };
        task.start();
        if self.is_served() {
            return Ok(());
        }
        // A runtime that was shut down drops the task at once.
        lock(&self.state).is_shut_down = self.pool.is_pinned();
        Err(NoRuntime)
    }

    /// The task, if it is missing. Sets the alarm of a new client.
    pub(super) fn next_task(&self, runtime: Handle) -> Result<Option<ClientTask>, NoRuntime> {
        let Some(engine) = self.this.upgrade() else { return Ok(None) };
        let mut state = lock(&self.state);
        if state.is_shut_down {
            return Err(NoRuntime);
        }
        let now = self.now();
        self.set_alarm(&state, now);
        if state.served_by.is_some() {
            return Ok(None);
        }
        state.served_by = Some(runtime.id());
        self.is_served.store(true, Ordering::SeqCst);
        let generation = self.task.handle_start(now);
        if std::mem::replace(&mut state.has_started, true) {
            state.coordinator.handle_new_runtime(now);
        }
        Ok(Some(ClientTask { engine, generation, runtime }))
    }

    /// The task of `generation` has ended, and its connections with the runtime. All callers run, and one of them starts
    /// another task. If none does, work that is left is done on the library's own runtime.
    fn handle_task_end(&self, generation: u64) {
        let mut io = lock(&self.io);
        if !self.task.is_current(generation) {
            return;
        }
        let ended = std::mem::take(&mut *io);
        drop(io);
        drop(ended);
        let is_pinned = self.pool.is_pinned();
        let wakers = self.with_state(Thread::Caller, |state, now| {
            if !self.task.is_current(generation) {
                return None;
            }
            self.end_task(state, !is_pinned, now);
            Some((state.take_wakers(), state.coordinator.has_work()))
        });
        // Requests that were queued, and streams that were opened, before this task was known to have ended.
        self.execute_requests();
        self.close_unused();
        let Some(Some((wakers, has_work))) = wakers else { return };
        self.wake_callers(wakers);
        if has_work && !is_pinned {
            self.serve_by_own_runtime(HAND_OVER);
        }
    }

    /// Starts a task on the library's own runtime after `delay`, unless a caller on another runtime starts one before.
    pub(super) fn serve_by_own_runtime(&self, delay: Duration) {
        let Some((engine, runtime)) = self.this.upgrade().zip(self.pool.own_runtime()) else {
            return;
        };
        runtime.spawn(async move {
            tokio::time::sleep(delay).await;
            let _no_runtime = engine.ensure_task().is_err();
        });
    }

    /// Ends the task if another runtime than `here` is late to run it. Its streams are closed in the next turn.
    pub(super) fn end_late_task(&self, here: Id) {
        if !self.is_late.load(Ordering::Acquire) {
            return;
        }
        // An observer must not block the library's own runtime.
        self.with_state(Thread::Timer, |state, now| {
            if !self.is_task_late(state, now) || state.served_by == Some(here) {
                return;
            }
            self.is_late.store(false, Ordering::Release);
            self.end_task(state, true, now);
            state.lateness.handle_replacement(now);
        });
    }

    /// The task has ended or is replaced, and another one `is_next`.
    fn end_task(&self, state: &mut State, is_next: bool, now: Time) {
        state.wakers.extend(self.task.handle_end());
        state.served_by = None;
        self.is_served.store(false, Ordering::SeqCst);
        state.coordinator.handle_runtime_end(is_next, now);
    }

    /// All callers run. One of them starts the missing task, or replaces the late one of another runtime.
    pub(super) fn wake_callers(&self, wakers: Vec<Waker>) {
        contain(|| self.leases.wake_all());
        for waker in wakers {
            contain(|| waker.wake());
        }
    }
}
