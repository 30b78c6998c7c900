//! The alarm of a client: timeouts, and turns for a task that is late.

use super::lateness::TURNS;
use super::shared::{Engine, IDLE, State, Thread};
use crate::protocol::Time;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, lock};
use crate::time::{Alarm, Ring};
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

/// The alarm of a client, from its first task until it is closed.
pub(super) struct ClientAlarm {
    alarm: Mutex<Option<Alarm>>,
    /// When it rings, in nanoseconds.
    at: AtomicU64,
}

impl Default for ClientAlarm {
    fn default() -> Self {
        Self { alarm: Mutex::default(), at: AtomicU64::new(u64::MAX) }
    }
}

impl ClientAlarm {
    /// Sets the alarm if it is not set: it rings at once.
    fn set(&self, set: impl FnOnce() -> Alarm) {
        let mut alarm = lock(&self.alarm);
        if alarm.is_none() {
            self.at.store(0, Ordering::SeqCst);
            *alarm = Some(set());
        }
    }

    pub(super) fn cancel(&self) {
        let alarm = lock(&self.alarm).take();
        drop(alarm);
    }

    /// The alarm rings at `at` at the latest.
    pub(super) fn hasten(&self, at: Time) {
        // Usually it rings earlier.
        if at.as_nanos() < self.at.load(Ordering::SeqCst)
            && at.as_nanos() < self.at.fetch_min(at.as_nanos(), Ordering::SeqCst)
            && let Some(alarm) = &*lock(&self.alarm)
        {
            alarm.hasten(at);
        }
    }

    /// The alarm rings. What happens from now on hastens the next time.
    fn handle_ring(&self) {
        self.at.store(u64::MAX, Ordering::SeqCst);
    }
}

impl Ring for Engine {
    /// Takes turns for a task that is late, and handles timeouts.
    fn ring(self: Arc<Self>, _: Time) -> Option<Time> {
        self.alarm.handle_ring();
        self.take_turn(&mut Context::from_waker(Waker::noop()), None);
        let mut next = self.handle_timeout();
        // A node counts as silent only if there is still no reply once all replies that have arrived were read.
        if next.is_some_and(|at| at <= self.now()) {
            self.take_turn(&mut Context::from_waker(Waker::noop()), None);
            next = self.handle_timeout();
        }
        next
    }
}

impl Engine {
    /// Handles timeouts that are due. Returns when the alarm has to ring next, or `None` if the client is closed.
    fn handle_timeout(&self) -> Option<Time> {
        let (next, late) = self.with_state(Thread::Timer, |state, now| {
            if state.coordinator.poll_timeout(now).is_some_and(|at| at <= now) {
                state.coordinator.handle_timeout(now);
            }
            let next = state.coordinator.poll_timeout(now).unwrap_or_else(|| now.after(IDLE));
            let (check_at, late) = self.check_task(state, now);
            if late.is_some() {
                self.is_late.store(true, Ordering::Release);
            }
            let mut next = check_at.map_or(next, |at| next.min(at));
            let is_late = self.is_task_late(state, now);
            self.has_late_task.store(is_late, Ordering::SeqCst);
            // The runtime does not notice replies while its threads are blocked.
            if is_late && state.coordinator.expects_reply() {
                next = next.min(now.after(TURNS));
            }
            ((!state.coordinator.is_closed()).then_some(next), late)
        })?;
        if let Some(late) = late {
            self.wake_callers(late.callers);
            if late.needs_runtime {
                self.serve_by_own_runtime(Duration::ZERO);
            }
        }
        // The alarm is set by the returned time.
        self.alarm.hasten(next?);
        next
    }

    /// Sets the alarm, unless the client is closed.
    pub(super) fn set_alarm(&self, state: &State, now: Time) {
        if !state.coordinator.is_closed() {
            let ring: Weak<dyn Ring> = self.this.clone();
            self.alarm.set(|| self.environment().clock.set_alarm(now, ring));
        }
    }
}
