//! Requests of callers. A caller does not wait for the coordinator: the client's task executes the request when it next
//! runs.

use super::shared::{Engine, State, Thread};
use crate::protocol::Time;
use crate::sync::atomic::{Ordering, fence};
use crate::sync::try_lock;

impl Engine {
    /// Submits `request`. Requests are executed in the order of submission. Usually, this method wakes the client's
    /// task, which executes `request`. If another thread uses the coordinator first, that thread executes `request`
    /// instead. If the client has no task, `request` is executed immediately. If the coordinator has panicked,
    /// `request` is dropped. The caller must have checked that the engine belongs to this process.
    pub(super) fn request(&self, request: impl FnOnce(&mut State, Time) + Send + 'static) {
        self.submit(request, false);
    }

    /// Like [`request`](Self::request), but executes `request` immediately if no other thread is using the coordinator.
    pub(super) fn request_now(&self, request: impl FnOnce(&mut State, Time) + Send + 'static) {
        self.submit(request, true);
    }

    fn submit(&self, request: impl FnOnce(&mut State, Time) + Send + 'static, is_urgent: bool) {
        self.requests.push(Box::new(request));
        // Orders the push before the checks below. After a task's end or a panic, the queue is checked again.
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

    /// Executes the queued requests. Unless the client has a task to execute the requests, each thread that unlocks the
    /// state must call this method afterwards. If another thread has locked the state again, that thread makes the
    /// call.
    pub(super) fn execute_requests(&self) {
        loop {
            // Orders the unlock or the push before the check of the queue.
            fence(Ordering::SeqCst);
            if !self.requests.has_requests() {
                return;
            }
            let Some(state) = try_lock(&self.state) else { return };
            self.with_locked(state, Thread::Caller, |_, _| ());
        }
    }

    /// Wakes the task. Also sets the alarm, in case the runtime runs the task too late. If the task is already known to
    /// be late, the alarm fires immediately.
    pub(super) fn wake_task(&self, now: Time, thread: Thread) {
        self.task.wake(now);
        // On the timer thread, the alarm already polls the connections. Only the task can open new ones.
        let is_late = self.has_late_task() && thread != Thread::Timer;
        let late_at = if is_late { now } else { now.after(self.late_after) };
        self.alarm.fire_by(late_at);
    }

    fn has_late_task(&self) -> bool {
        self.has_late_task.load(Ordering::SeqCst)
    }
}
