//! One thread for the whole process that rings alarms.
//!
//! Leases end by this timer, not by tokio's: a task that blocks can hold up tokio's timers for all
//! workers, and they stand still while the machine sleeps. A wake-up from this thread does not.

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

/// The pause after a bell has panicked.
const AFTER_PANIC: Duration = Duration::from_millis(10);

/// An alarm that was set; it is cancelled when this is dropped.
pub(crate) struct Alarm(Kind);

enum Kind {
    /// Of the process's thread.
    Thread(ThreadAlarm),
    #[cfg(feature = "test-util")]
    Other(Box<dyn SourceAlarm>),
}

struct ThreadAlarm {
    timer: &'static Timer,
    key: usize,
}

impl Alarm {
    /// Rings `bell` at `at` on the machine's clock, and then whenever it asks to be rung again.
    pub(super) fn set(at: Time, bell: Weak<dyn Ring>) -> Self {
        Self(Kind::Thread(Timer::here().set(at, bell)))
    }

    #[cfg(feature = "test-util")]
    pub(super) fn of(alarm: Box<dyn SourceAlarm>) -> Self {
        Self(Kind::Other(alarm))
    }

    /// Rings at `at` at the latest.
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

/// The clock was moved: the timer thread reads it again.
#[cfg(feature = "test-util")]
pub(crate) fn wake() {
    Timer::here().sleeper.wake();
}

/// True if every alarm that is due has rung.
#[cfg(feature = "test-util")]
pub(crate) fn is_idle() -> bool {
    Timer::here().alarms().is_idle(machine::now())
}

/// The timers of this process and of those that it was forked from.
static TIMERS: PerProcess<Timer> = PerProcess::new();

thread_local! {
    /// The timer of this thread, where there are too many generations.
    static SPARE: Cell<Option<&'static Timer>> = const { Cell::new(None) };
}

struct Timer {
    process: u32,
    alarms: Mutex<Alarms>,
    sleeper: Sleeper,
    is_running: AtomicBool,
}

/// The timer's thread; when it is gone, the next alarm starts another.
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
    /// The timer of this process.
    fn here() -> &'static Self {
        let process = process::id();
        let known = TIMERS.get_or_init(process, || Self::new(process));
        known.unwrap_or_else(|| Self::spare(process))
    }

    /// This thread's.
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

    /// Starts the thread, if it does not run. If the system refuses one, the next alarm tries again.
    fn start(&'static self) {
        if self.is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        let running = Running(self);
        let thread = thread::Builder::new().name("quorlock-timer".to_owned());
        // If no thread can be started, `running` is dropped, which marks the timer as not running.
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
