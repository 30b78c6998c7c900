//! The timer thread, which rings the alarms of the whole process.
//!
//! Leases end by this timer and not by tokio's. A blocking task can delay tokio's timers for all workers, and tokio's
//! timers do not advance while the machine is suspended. Wake-ups from this thread are not delayed.

use super::alarms::Alarms;
use super::machine;
use super::ring::Ring;
#[cfg(feature = "test-util")]
use super::ring::SourceAlarm;
use super::sleeper::Sleeper;
use crate::protocol::Time;
use crate::sync::{PerProcess, contain, lock};
use std::cell::Cell;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Weak};
use std::thread;
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
    /// Calls `bell` at `at` on the machine's clock, then at each time that `bell` returns.
    pub(super) fn set(at: Time, bell: Weak<dyn Ring>) -> Self {
        Self(Kind::Thread(Timer::here().set(at, bell)))
    }

    #[cfg(feature = "test-util")]
    pub(super) fn of(alarm: Box<dyn SourceAlarm>) -> Self {
        Self(Kind::Other(alarm))
    }

    /// Reschedules the alarm to `at`, unless it is due earlier.
    pub(crate) fn hasten(&self, at: Time) {
        match &self.0 {
            Kind::Thread(alarm) => alarm.hasten(at),
            #[cfg(feature = "test-util")]
            Kind::Other(alarm) => alarm.hasten(at),
        }
    }
}

impl ThreadAlarm {
    fn hasten(&self, at: Time) {
        if self.is_ours() && self.timer.alarms().hasten(self.key, at) {
            self.timer.start();
            self.timer.sleeper.wake();
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

/// Wakes the timer thread to read the clock again after a test has moved the clock.
#[cfg(feature = "test-util")]
pub(crate) fn wake() {
    Timer::here().sleeper.wake();
}

/// Returns true if every alarm that is due has rung.
#[cfg(feature = "test-util")]
pub(crate) fn is_idle() -> bool {
    Timer::here().alarms().is_idle(machine::now())
}

/// The timer of this process, and the timers of the processes from which it was forked.
static TIMERS: PerProcess<Timer> = PerProcess::new();

thread_local! {
    /// The timer of this thread, used if [`TIMERS`] has no free slot for the process.
    static SPARE: Cell<Option<&'static Timer>> = const { Cell::new(None) };
}

struct Timer {
    process: u32,
    alarms: Mutex<Alarms>,
    sleeper: Sleeper,
    is_running: AtomicBool,
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
        self.0.is_running.store(false, Ordering::Release);
    }
}

impl Timer {
    /// Returns the timer of this process.
    fn here() -> &'static Self {
        let process = process::id();
        let known = TIMERS.get_or_init(process, || Self::new(process));
        known.unwrap_or_else(|| Self::spare(process))
    }

    /// Returns the timer of this thread. A timer is leaked for each new `process`.
    fn spare(process: u32) -> &'static Self {
        let known = SPARE.get().filter(|timer| timer.process == process);
        known.unwrap_or_else(|| {
            let timer: &'static Self = Box::leak(Box::new(Self::new(process)));
            SPARE.set(Some(timer));
            timer
        })
    }

    fn new(process: u32) -> Self {
        let (alarms, sleeper) = (Mutex::default(), Sleeper::new());
        Self { process, alarms, sleeper, is_running: AtomicBool::new(false) }
    }

    fn set(&'static self, at: Time, bell: Weak<dyn Ring>) -> ThreadAlarm {
        let key = self.alarms().set(at, bell);
        self.start();
        self.sleeper.wake();
        ThreadAlarm { timer: self, key }
    }

    /// Starts the timer thread if it is not running. If the system cannot start a thread, the next alarm tries again.
    fn start(&'static self) {
        if self.is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        let running = Running(self);
        let thread = thread::Builder::new().name("quorlock-timer".to_owned());
        // If no thread can be started, `running` is dropped, which marks the timer as stopped.
        let _ = thread.spawn(move || running.run());
    }

    fn run(&self) {
        loop {
            loop {
                let now = machine::now();
                let Some(bell) = self.alarms().take_due(now) else { break };
                let answer = contain(|| bell.upgrade().and_then(|bell| bell.ring(now)));
                let again = answer.unwrap_or_else(|| Some(now.after(AFTER_PANIC)));
                self.alarms().put_back(again);
            }
            let next = self.alarms().next();
            self.sleeper.sleep_until(next);
        }
    }

    fn alarms(&self) -> MutexGuard<'_, Alarms> {
        lock(&self.alarms)
    }
}

#[cfg(test)]
#[path = "timer_tests.rs"]
mod tests;
