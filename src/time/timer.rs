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
use crate::sync::{contain, lock};
use std::cell::Cell;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, Weak};
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

/// Looks at the clock anew: it was moved.
#[cfg(feature = "test-util")]
pub(crate) fn wake() {
    Timer::here().sleeper.wake();
}

/// True if every alarm that is due has rung.
#[cfg(feature = "test-util")]
pub(crate) fn is_idle() -> bool {
    Timer::here().alarms().is_idle(machine::now())
}

/// So many processes can come from each other by fork, and have a timer that their threads share.
const GENERATIONS: usize = 64;

/// The timers of this process and of those that it was forked from, the eldest first.
///
/// 1. A thread of the parent has locked the timer's book.
/// 2. Another one forks.
/// 3. In the child the book is locked for good, and no thread rings.
///
/// So a child makes a timer of its own, at a place that no process before it has touched.
static TIMERS: [Slot; GENERATIONS] = [const { Slot::empty() }; GENERATIONS];

thread_local! {
    /// The timer of this thread, where there are too many generations.
    static SPARE: Cell<Option<&'static Timer>> = const { Cell::new(None) };
}

struct Slot {
    /// Whose it is; 0 if it is nobody's.
    process: AtomicU32,
    timer: OnceLock<Timer>,
}

impl Slot {
    const fn empty() -> Self {
        Self { process: AtomicU32::new(0), timer: OnceLock::new() }
    }

    /// The timer of `process`, if this is its place, or was nobody's.
    fn timer_of(&'static self, process: u32) -> Option<&'static Timer> {
        let taken = self.process.compare_exchange(0, process, Ordering::AcqRel, Ordering::Acquire);
        let is_ours = taken.map_or_else(|known| known == process, |_| true);
        is_ours.then(|| self.timer.get_or_init(|| Timer::new(process)))
    }
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
    /// This process's.
    fn here() -> &'static Self {
        let process = process::id();
        let found = TIMERS.iter().find_map(|place| place.timer_of(process));
        found.unwrap_or_else(|| Self::spare(process))
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
        // Where there is no thread, what it was to do is dropped, and so does not run.
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
