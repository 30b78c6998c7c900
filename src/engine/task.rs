//! Starts and ends the task of a client, and replaces a task that its runtime runs too late.

use super::shared::{Engine, State, Thread};
use super::turn::TurnTask;
use crate::node::NoRuntime;
use crate::protocol::Time;
use crate::sync::{catch_panic, lock};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::runtime::{Handle, Id};

/// How long callers on other runtimes have to start a new task after a runtime has ended. After this time, the
/// library's own runtime starts the task.
const HAND_OVER: Duration = Duration::from_millis(20);

/// Time after which the library's own runtime replaces a late task, if the client needs new connections. Until then,
/// the alarm polls the existing connections but cannot open any.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) struct TaskReplacement {
    /// The wakers of all callers, any of which can replace the task.
    pub(super) callers: Vec<Waker>,
    /// Whether the library's own runtime must replace the task if no caller does.
    pub(super) needs_runtime: bool,
}

/// A task that reads and writes the client's connections until the client is closed. If the runtime drops the task
/// earlier, another task takes over the client.
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
        engine.environment().observers.refresh();
        let turn = TurnTask { generation: *generation, runtime };
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

    fn woken_at(&self, state: &State) -> Option<Time> {
        state.served_by?;
        self.task.woken_at()
    }

    pub(super) fn is_task_late(&self, state: &State, now: Time) -> bool {
        self.woken_at(state).is_some_and(|at| now >= state.lateness.late_at(at))
    }

    /// Checks whether the task is late. Returns the time of the next check, and a [`TaskReplacement`] if the task must
    /// be replaced at `now`. Both are `None` if the task is not waiting to run.
    pub(super) fn check_task(
        &self,
        state: &mut State,
        now: Time,
    ) -> (Option<Time>, Option<TaskReplacement>) {
        let Some(woken_at) = self.woken_at(state) else { return (None, None) };
        let (next, is_late) = state.lateness.check(woken_at, now);
        let needs_runtime = now.since(woken_at) >= PATIENCE
            && state.coordinator.needs_connection()
            && state.coordinator.has_work();
        let late = is_late.then(|| TaskReplacement { callers: state.take_wakers(), needs_runtime });
        (Some(next), late)
    }

    /// Ensures that the client has a task that is not late. If the task is missing, starts one on the pinned runtime or
    /// the current one. If another runtime runs the task late, replaces it. Returns an error if no runtime can run the
    /// task.
    pub(crate) fn ensure_task(&self) -> Result<(), NoRuntime> {
        let is_missing = !self.is_served();
        if !(is_missing || self.is_late.load(Ordering::Acquire)) || !self.is_usable() {
            return Ok(());
        }
        let runtime = match self.pool.runtime() {
            // A task on another runtime serves the client.
            Err(_) if !is_missing => return Ok(()),
            runtime => runtime?,
        };
        self.end_late_task(runtime.id());
        let Some(task) = self.next_task(runtime)? else { return Ok(()) };
        task.start();
        if self.is_served() {
            return Ok(());
        }
        // A runtime that was shut down drops the task immediately.
        lock(&self.state).is_shut_down = self.pool.is_pinned();
        Err(NoRuntime::ShutDown)
    }

    /// Creates a task for `runtime`, and sets the client's alarm. Returns `None` if the client already has a task or
    /// was dropped.
    pub(super) fn next_task(&self, runtime: Handle) -> Result<Option<ClientTask>, NoRuntime> {
        let Some(engine) = self.this.upgrade() else { return Ok(None) };
        let mut state = lock(&self.state);
        if state.is_shut_down {
            return Err(NoRuntime::ShutDown);
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

    /// Handles the end of the task of `generation`. Ignores a task that another one has already replaced.
    /// Otherwise, closes the client's connections, because they depend on the runtime of the task, and wakes all
    /// callers, so that one of them starts another task. If no caller does, the library's own runtime does the
    /// remaining work, unless the client is pinned to a runtime.
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
        // Other threads may have queued requests or opened streams before they noticed that the task had ended.
        self.execute_requests();
        self.close_unused();
        let Some(Some((wakers, has_work))) = wakers else { return };
        self.wake_callers(wakers);
        if has_work && !is_pinned {
            self.serve_by_own_runtime(HAND_OVER);
        }
    }

    /// After `delay`, starts a task on the library's own runtime, unless a caller on another runtime has started one.
    pub(super) fn serve_by_own_runtime(&self, delay: Duration) {
        let Some((engine, runtime)) = self.this.upgrade().zip(self.pool.own_runtime().ok()) else {
            return;
        };
        runtime.spawn(async move {
            tokio::time::sleep(delay).await;
            let _no_runtime = engine.ensure_task().is_err();
        });
    }

    /// Ends the task if a runtime other than `here` runs it late. The thread that next polls the connections closes the
    /// streams of the ended task.
    pub(super) fn end_late_task(&self, here: Id) {
        if !self.is_late.load(Ordering::Acquire) {
            return;
        }
        // An observer must not block the library's own runtime. `Thread::Timer` makes another thread emit the events.
        self.with_state(Thread::Timer, |state, now| {
            if !self.is_task_late(state, now) || state.served_by == Some(here) {
                return;
            }
            self.is_late.store(false, Ordering::Release);
            self.end_task(state, true, now);
            state.lateness.handle_replacement(now);
        });
    }

    /// Records that the task has ended or is replaced. `is_next` is true if another task follows.
    fn end_task(&self, state: &mut State, is_next: bool, now: Time) {
        state.wakers.extend(self.task.handle_end());
        state.served_by = None;
        self.is_served.store(false, Ordering::SeqCst);
        state.coordinator.handle_runtime_end(is_next, now);
    }

    /// Wakes all callers, so that one of them starts the missing task or replaces the late task of another runtime.
    pub(super) fn wake_callers(&self, wakers: Vec<Waker>) {
        catch_panic(|| self.leases.wake_all());
        for waker in wakers {
            catch_panic(|| waker.wake());
        }
    }
}
