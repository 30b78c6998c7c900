//! Requests of callers, which do not wait for the coordinator: the client's task executes them in its next turn.

use super::shared::{Engine, State, Thread};
use crate::protocol::Time;
use crate::sync::atomic::{Ordering, fence};
use crate::sync::try_lock;

impl Engine {
    /// Queues `request`, which the next user of the coordinator executes, after those that were queued before: usually
    /// the task, which is woken. Without a task it is executed at once. It is dropped if the coordinator has panicked.
    /// The caller has checked that the engine belongs to this process.
    pub(super) fn request(&self, request: impl FnOnce(&mut State, Time) + Send + 'static) {
        self.submit(request, false);
    }

    /// Like [`request`](Self::request), but the request is executed at once if the coordinator is free.
    pub(super) fn request_now(&self, request: impl FnOnce(&mut State, Time) + Send + 'static) {
        self.submit(request, true);
    }

    fn submit(&self, request: impl FnOnce(&mut State, Time) + Send + 'static, is_urgent: bool) {
        self.requests.push(Box::new(request));
        // Orders the push before the checks. A task that ends, and a panic, check the queue after that.
        fence(Ordering::SeqCst);
        if self.has_panicked() {
            return drop(self.requests.take());
        }
        let is_served = self.is_served();
        if is_urgent || !is_served {
            self.execute_requests();
        }
        let is_awake = self.task.is_woken() && !self.has_late_task();
        if is_served && !is_awake && self.requests.has_requests() {
            self.wake_task(self.now(), Thread::Caller);
        }
    }

    /// Executes the requests that were queued. To be called after the mutex was unlocked, unless a task executes them: if
    /// the mutex is locked again, its holder makes this call.
    pub(super) fn execute_requests(&self) {
        loop {
            // Orders the unlock, or the push, before the check.
            fence(Ordering::SeqCst);
            if !self.requests.has_requests() {
                return;
            }
            let Some(state) = try_lock(&self.state) else { return };
            self.with_locked(state, Thread::Caller, |_, _| ());
        }
    }

    /// The task takes a turn. If its runtime is late to run it, the alarm rings: at once if that is known.
    pub(super) fn wake_task(&self, now: Time, thread: Thread) {
        self.task.wake(now);
        // The alarm does what it can, and cannot open connections.
        let is_late = self.has_late_task() && thread != Thread::Timer;
        let late_at = if is_late { now } else { now.after(self.late_after) };
        self.alarm.hasten(late_at);
    }

    fn has_late_task(&self) -> bool {
        self.has_late_task.load(Ordering::SeqCst)
    }
}
