//! The timer thread, which fires the alarms of the whole process.
//!
//! This timer, and not tokio's, detects the end of a lease. A blocking task can delay tokio's timers for all workers,
//! and tokio's timers do not advance while the machine is suspended. Wake-ups from this thread are not delayed.

use super::alarms::Alarms;
use super::machine;
use super::on_alarm::OnAlarm;
#[cfg(feature = "test-util")]
use super::on_alarm::SourceAlarm;
use super::parker::Parker;
use crate::protocol::Time;
use crate::sync::{PerProcess, catch_panic, lock, threads};
use std::cell::Cell;
use std::io;
use std::process;
use std::sync::{Mutex, MutexGuard, Weak};
use std::time::Duration;

/// The pause before a callback that panicked is called again.
const AFTER_PANIC: Duration = Duration::from_millis(10);

/// A handle to an alarm. Dropping the handle cancels the alarm.
pub(crate) struct Alarm(Kind);

enum Kind {
    Thread(ThreadAlarm),
    #[cfg(feature = "test-util")]
    Other(Box<dyn SourceAlarm>),
}

struct ThreadAlarm {
    timer: &'static Timer,
    key: usize,
}

impl Alarm {
    /// Sets an alarm that calls `callback` at the time `at` of the machine's clock. If `callback` returns another time,
    /// the alarm calls it again at that time.
    pub(super) fn set(at: Time, callback: Weak<dyn OnAlarm>) -> Self {
        Self(Kind::Thread(Timer::of_process().set(at, callback)))
    }

    #[cfg(feature = "test-util")]
    pub(super) fn of(alarm: Box<dyn SourceAlarm>) -> Self {
        Self(Kind::Other(alarm))
    }

    /// Reschedules the alarm to `at`, unless it is due earlier.
    pub(crate) fn reschedule_earlier(&self, at: Time) {
        match &self.0 {
            Kind::Thread(alarm) => alarm.reschedule_earlier(at),
            #[cfg(feature = "test-util")]
            Kind::Other(alarm) => alarm.reschedule_earlier(at),
        }
    }
}

impl ThreadAlarm {
    fn reschedule_earlier(&self, at: Time) {
        if self.is_ours() && self.timer.alarms().reschedule_earlier(self.key, at) {
            let _not_running = self.timer.start().is_err();
            self.timer.parker.wake();
        }
    }

    fn is_ours(&self) -> bool {
        self.timer.process == process::id()
    }
}

impl Drop for ThreadAlarm {
    fn drop(&mut self) {
        if self.is_ours() {
            self.timer.alarms().cancel(self.key);
        }
    }
}

/// Starts the timer thread of this process if it is not running.
pub(super) fn start() -> io::Result<()> {
    Timer::of_process().start()
}

/// Wakes the timer thread, so that it reads the clock again after a test has advanced the clock.
#[cfg(feature = "test-util")]
pub(crate) fn wake() {
    Timer::of_process().parker.wake();
}

/// Returns true if every alarm that is due has fired.
#[cfg(feature = "test-util")]
pub(crate) fn is_idle() -> bool {
    Timer::of_process().alarms().is_idle(machine::now())
}

/// The timer of this process, and the timers of the processes from which it was forked.
static TIMERS: PerProcess<Timer> = PerProcess::new();

thread_local! {
    /// The timer of this thread, used if [`TIMERS`] has no free slot for the process.
    static THREAD_TIMER: Cell<Option<&'static Timer>> = const { Cell::new(None) };
}

struct Timer {
    process: u32,
    alarms: Mutex<Alarms>,
    parker: Parker,
    is_running: Mutex<bool>,
}

/// A guard that marks the timer as stopped when its thread ends. The next alarm then starts a new thread.
struct Running(&'static Timer);

impl Running {
    fn run(self) {
        self.0.run();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        *lock(&self.0.is_running) = false;
    }
}

impl Timer {
    /// Returns the timer of this process.
    fn of_process() -> &'static Self {
        let process = process::id();
        let known = TIMERS.get_or_init(process, || Self::new(process));
        known.unwrap_or_else(|| Self::of_thread(process))
    }

    /// Returns the timer of this thread. Each thread leaks one timer for each new `process`.
    fn of_thread(process: u32) -> &'static Self {
        let known = THREAD_TIMER.get().filter(|timer| timer.process == process);
        known.unwrap_or_else(|| {
            let timer: &'static Self = Box::leak(Box::new(Self::new(process)));
            THREAD_TIMER.set(Some(timer));
            timer
        })
    }

    fn new(process: u32) -> Self {
        let (alarms, parker) = (Mutex::default(), Parker::new());
        Self { process, alarms, parker, is_running: Mutex::new(false) }
    }

    fn set(&'static self, at: Time, callback: Weak<dyn OnAlarm>) -> ThreadAlarm {
        let key = self.alarms().set(at, callback);
        let _not_running = self.start().is_err();
        self.parker.wake();
        ThreadAlarm { timer: self, key }
    }

    /// Starts the timer thread if it is not running. After an error, the next call tries again.
    fn start(&'static self) -> io::Result<()> {
        // The mutex is locked until the thread has started, so that no other caller relies on a thread that fails to.
        let mut is_running = lock(&self.is_running);
        if !*is_running {
            threads::spawn_shared("quorlock-timer", move || Running(self).run())?;
            *is_running = true;
        }
        Ok(())
    }

    fn run(&self) {
        loop {
            loop {
                let now = machine::now();
                let Some(callback) = self.alarms().take_due(now) else { break };
                let answer =
                    catch_panic(|| callback.upgrade().and_then(|callback| callback.on_alarm(now)));
                let again = answer.unwrap_or_else(|| Some(now.after(AFTER_PANIC)));
                self.alarms().finish_firing(again);
            }
            let next = self.alarms().next();
            self.parker.sleep_until(next);
        }
    }

    fn alarms(&self) -> MutexGuard<'_, Alarms> {
        lock(&self.alarms)
    }
}

#[cfg(test)]
#[path = "timer_tests.rs"]
mod tests;
