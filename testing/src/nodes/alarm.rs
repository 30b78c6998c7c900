//! Alarms that follow the clock of a tokio runtime.

use super::advanced_time::AdvancedTime;
use super::lock::lock;
use quorlock::test_util::{self, has_timers};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use std::time::Duration;
use tokio::runtime::{self, Handle};
use tokio::sync::Notify;

/// Delay until a callback that panicked is called again.
const AFTER_PANIC: Duration = Duration::from_millis(10);

/// Callback of an alarm. It receives the current time, and returns the time of the next call, or
/// `None` to end the alarm.
pub(super) type Callback = Box<dyn Fn(Duration) -> Option<Duration> + Send + Sync>;

/// State of one alarm. The alarm waits in a task of the runtime in which it was set, so a runtime
/// with a paused clock advances the clock to the alarm. Without a runtime, or after the runtime's
/// shutdown, the task runs on [`BACKGROUND`].
pub(super) struct AlarmState {
    time: Arc<AdvancedTime>,
    callback: Callback,
    due: Mutex<Duration>,
    /// Notified when a test advances the time, and when the alarm is moved or cancelled.
    changed: Notify,
    is_over: AtomicBool,
}

/// Handle to an alarm. Dropping the handle cancels the alarm.
pub(super) struct AlarmHandle(Arc<AlarmState>);

/// Task of an alarm. If a runtime drops the task at shutdown, the task restarts on [`BACKGROUND`].
struct AlarmTask(Arc<AlarmState>);

/// Runtime for alarms that were set outside a runtime, or whose runtime was shut down. The clock of
/// this runtime is never paused.
static BACKGROUND: LazyLock<Handle> = LazyLock::new(|| {
    let runtime = runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime without I/O needs no resources");
    let handle = runtime.handle().clone();
    let thread = thread::Builder::new().name("quorlock-test-alarms".to_owned());
    let run = move || runtime.block_on(std::future::pending::<()>());
    thread.spawn(run).expect("the system can start a thread");
    handle
});

impl AlarmState {
    pub(super) fn new(time: Arc<AdvancedTime>, at: Duration, callback: Callback) -> Arc<Self> {
        Arc::new(Self {
            time,
            callback,
            due: Mutex::new(at),
            changed: Notify::new(),
            is_over: AtomicBool::new(false),
        })
    }

    /// Wakes the alarm's task after the clock or `due` has changed.
    pub(super) fn clock_changed(&self) {
        self.changed.notify_one();
    }

    /// Calls the callback if the alarm is due. Returns the time until the next call is due, or
    /// `None` if the alarm has ended.
    fn ring_if_due(&self) -> Option<Duration> {
        if self.is_over.load(Ordering::SeqCst) {
            return None;
        }
        let now = self.time.now();
        {
            let mut due = lock(&self.due);
            if now < *due {
                return Some(due.saturating_sub(now));
            }
            // A concurrent `hasten` may set an earlier time than the callback returns; the minimum
            // is taken below.
            *due = Duration::MAX;
        }
        let answer = catch_unwind(AssertUnwindSafe(|| (self.callback)(now)));
        let Some(again) = answer.unwrap_or_else(|_| Some(now.saturating_add(AFTER_PANIC))) else {
            self.is_over.store(true, Ordering::SeqCst);
            return None;
        };
        let mut due = lock(&self.due);
        *due = again.min(*due);
        Some(due.saturating_sub(now))
    }
}

impl AlarmHandle {
    pub(super) fn begin(watch: Arc<AlarmState>) -> Self {
        let runtime = Handle::try_current().ok().filter(has_timers);
        // A runtime that was shut down drops the task immediately.
        runtime.as_ref().unwrap_or(&BACKGROUND).spawn(AlarmTask(watch.clone()).keep());
        Self(watch)
    }
}

impl test_util::Alarm for AlarmHandle {
    fn hasten(&self, at: Duration) {
        {
            let mut due = lock(&self.0.due);
            *due = at.min(*due);
        }
        self.0.clock_changed();
    }
}

impl Drop for AlarmHandle {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
        self.0.changed.notify_one();
    }
}

impl AlarmTask {
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

impl Drop for AlarmTask {
    fn drop(&mut self) {
        if !self.0.is_over.load(Ordering::SeqCst) {
            BACKGROUND.spawn(AlarmTask(self.0.clone()).keep());
        }
    }
}
