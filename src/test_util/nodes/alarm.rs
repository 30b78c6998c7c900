//! Alarms on a tokio runtime's clock.

use super::advanced_time::AdvancedTime;
use crate::node::{RuntimeDriver, lack};
use crate::protocol::Time;
use crate::sync::{contain, lock};
use crate::time::{Alarm, Clock, Ring, SourceAlarm};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// Delay of the next ring after a callback has panicked.
const AFTER_PANIC: Duration = Duration::from_millis(10);

/// One alarm. It waits in a task of the runtime in which it was set, so that a paused clock
/// includes it. Without a runtime, or after its shutdown, the process's alarm thread waits for it.
pub(super) struct Watch {
    time: Arc<AdvancedTime>,
    bell: Weak<dyn Ring>,
    due: Mutex<Time>,
    /// Notified when the time was advanced, or the alarm was moved or cancelled.
    changed: Notify,
    is_over: AtomicBool,
    by_thread: OnceLock<Alarm>,
}

/// Handle of an alarm. Dropping it cancels the alarm.
pub(super) struct Vigil(Arc<Watch>);

/// The task of a [`Watch`]. Dropped early by a runtime that shuts down, it passes the alarm to the
/// thread.
struct Watcher(Arc<Watch>);

impl Watch {
    pub(super) fn new(time: Arc<AdvancedTime>, at: Time, bell: Weak<dyn Ring>) -> Arc<Self> {
        Arc::new(Self {
            time,
            bell,
            due: Mutex::new(at),
            changed: Notify::new(),
            is_over: AtomicBool::new(false),
            by_thread: OnceLock::new(),
        })
    }

    /// Reads the clock again, after a change of the clock or of `due`.
    pub(super) fn look_again(&self) {
        self.changed.notify_one();
        if let Some(alarm) = self.by_thread.get() {
            alarm.hasten(Clock::Machine.now());
        }
    }

    /// Rings if due. Returns the time until the next ring; `None` if there is none.
    fn ring_if_due(&self) -> Option<Duration> {
        if self.is_over.load(Ordering::SeqCst) {
            return None;
        }
        let now = self.time.now();
        {
            let mut due = lock(&self.due);
            if now < *due {
                return Some(due.since(now));
            }
            // A concurrent `hasten` may set an earlier time than the callback returns; the minimum
            // is taken below.
            *due = Time::END;
        }
        let answer = contain(|| self.bell.upgrade().and_then(|bell| bell.ring(now)));
        let Some(again) = answer.unwrap_or_else(|| Some(now.after(AFTER_PANIC))) else {
            self.is_over.store(true, Ordering::SeqCst);
            return None;
        };
        let mut due = lock(&self.due);
        *due = again.min(*due);
        Some(due.since(now))
    }

    fn go_by_thread(self: &Arc<Self>) {
        let this: Arc<dyn Ring> = self.clone();
        let now = Clock::Machine.now();
        let _ = self.by_thread.set(Clock::Machine.set_alarm(now, Arc::downgrade(&this)));
    }
}

impl Ring for Watch {
    fn ring(self: Arc<Self>, now: Time) -> Option<Time> {
        Some(now.after(self.ring_if_due()?))
    }
}

impl Vigil {
    pub(super) fn begin(watch: Arc<Watch>) -> Self {
        let runtime = Handle::try_current().ok();
        match runtime.filter(|runtime| lack(runtime) != Some(RuntimeDriver::Time)) {
            // A runtime that was shut down drops the task immediately, which starts the thread's
            // alarm.
            Some(runtime) => drop(runtime.spawn(Watcher(watch.clone()).keep())),
            None => watch.go_by_thread(),
        }
        Self(watch)
    }
}

impl SourceAlarm for Vigil {
    fn hasten(&self, at: Time) {
        {
            let mut due = lock(&self.0.due);
            *due = at.min(*due);
        }
        self.0.look_again();
    }
}

impl Drop for Vigil {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
        self.0.changed.notify_one();
    }
}

impl Watcher {
    async fn keep(self) {
        while let Some(left) = self.0.ring_if_due() {
            tokio::select! {
                biased;
                () = self.0.changed.notified() => {}
                () = tokio::time::sleep(left) => {}
            }
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if !self.0.is_over.load(Ordering::SeqCst) {
            self.0.go_by_thread();
        }
    }
}
