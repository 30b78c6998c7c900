//! Handles a client's alarm: processes timeouts, and reads and writes the connections in place of a late task.

use super::shared::{Engine, IDLE, State, Thread};
use crate::protocol::Time;
use crate::sync::atomic::Ordering;
use crate::sync::try_lock;
use crate::time::OnAlarm;
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

/// Delay before the alarm fires again if another thread was using the connections or the coordinator.
const RETRY_DELAY: Duration = Duration::from_millis(1);

impl OnAlarm for Engine {
    fn on_alarm(self: Arc<Self>, _: Time) -> Option<Time> {
        self.alarm.handle_firing();
        let next = self.take_turn_and_handle_timeout();
        // A node counts as silent only after all replies that have arrived were read.
        if next.is_some_and(|at| at <= self.now()) {
            return self.take_turn_and_handle_timeout();
        }
        next
    }
}

impl Engine {
    /// If another thread is using the coordinator, only fires again soon. The timer thread serves all clients, so it does
    /// not wait for the threads of one client: a mutex is not fair, and a busy task can lock it again for seconds.
    fn take_turn_and_handle_timeout(&self) -> Option<Time> {
        if try_lock(&self.state).is_none() {
            return Some(self.retry());
        }
        let turn = self.take_turn(&mut Context::from_waker(Waker::noop()), None);
        self.handle_timeout(turn.is_some())
    }

    /// Handles the timeouts that have passed. Returns the time at which the alarm must fire next, or `None` if the
    /// client is closed. `was_read` is true if all connections were read before this call and no other thread may still
    /// be reading them.
    fn handle_timeout(&self, was_read: bool) -> Option<Time> {
        let Some(state) = try_lock(&self.state) else { return Some(self.retry()) };
        let (next, late) = self.with_guard(state, Thread::Timer, |state, now| {
            if state.coordinator.poll_timeout(now).is_some_and(|at| at <= now) {
                state.coordinator.handle_timeout(now, was_read);
            }
            let next = state.coordinator.poll_timeout(now).unwrap_or_else(|| now.after(IDLE));
            let next = if was_read { next } else { next.max(now.after(RETRY_DELAY)) };
            let (check_at, late) = self.check_task(state, now);
            if late.is_some() {
                self.is_late.store(true, Ordering::Release);
            }
            let next = check_at.map_or(next, |at| next.min(at));
            let is_late = self.is_task_late(state, now);
            self.has_late_task.store(is_late, Ordering::SeqCst);
            ((!state.coordinator.is_closed()).then_some(next), late)
        })?;
        if let Some(late) = late {
            self.wake_callers(late.callers);
            if late.needs_runtime {
                self.serve_by_own_runtime(Duration::ZERO);
            }
        }
        // The returned time also sets the alarm.
        self.alarm.fire_by(next?);
        next
    }

    fn retry(&self) -> Time {
        let next = self.now().after(RETRY_DELAY);
        self.alarm.fire_by(next);
        next
    }

    pub(super) fn set_alarm(&self, state: &State, now: Time) {
        if !state.coordinator.is_closed() {
            let callback: Weak<dyn OnAlarm> = self.this.clone();
            self.alarm.set(|| self.environment().clock.set_alarm(now, callback));
        }
    }
}
