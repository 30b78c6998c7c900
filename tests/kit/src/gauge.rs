//! Measures how long the machine keeps threads waiting, and repeats checks that fail for that reason.

use std::io::{self, Write as _};
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the thread of a [`Gauge`] sleeps at a time.
const PAUSE: Duration = Duration::from_millis(5);

/// How often [`unless_stalled`] runs a check.
const ATTEMPTS: u32 = 5;

/// A thread that sleeps for 5 ms at a time, and measures how much longer each sleep was.
///
/// On a quiet machine, the longest delay is below 10 ms. If more threads are ready to run than there
/// are cores, delays of some 100 ms are common.
#[derive(Debug)]
pub struct Gauge {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct State {
    is_over: AtomicBool,
    record: Mutex<Record>,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    last_wake_up: Instant,
    longest_delay: Duration,
}

impl Gauge {
    /// Starts to measure.
    #[must_use = "a gauge that is dropped stops"]
    pub fn start() -> Self {
        let record = Record { last_wake_up: Instant::now(), longest_delay: Duration::ZERO };
        let state = Arc::new(State { is_over: AtomicBool::new(false), record: record.into() });
        let thread = thread::spawn({
            let state = state.clone();
            move || state.measure()
        });
        Self { state, thread: Some(thread) }
    }

    /// Returns the longest delay since the start, including a delay that has not ended yet.
    #[must_use]
    pub fn longest_delay(&self) -> Duration {
        self.state.record().longest_delay(Instant::now())
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl State {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn measure(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            thread::sleep(PAUSE);
            let (mut record, now) = (self.record(), Instant::now());
            *record = Record { longest_delay: record.longest_delay(now), last_wake_up: now };
        }
    }
}

impl Record {
    fn longest_delay(&self, now: Instant) -> Duration {
        self.longest_delay.max((now - self.last_wake_up).saturating_sub(PAUSE))
    }
}

/// Runs a check whose result depends on time: it returns an error if the machine does not run its
/// threads in time, such as the loss of a lease that should be renewed.
///
/// If the check fails, and the machine has delayed a thread by more than `tolerated` since the check
/// began, the failure proves nothing: the check runs again, at most five times. If the last one fails
/// for the same reason, the function returns after it has written a line to standard error. So the
/// check must start from the beginning, with its own servers or keys. A panic of the check is not
/// caught: use it for results that no delay can excuse.
///
/// Choose `tolerated` by what the check tolerates. A renewal involves about four threads and
/// processes in turn, each of which can be delayed, so a fraction of the available time is suitable.
///
/// # Panics
///
/// Panics if the check fails although no thread was delayed by more than `tolerated`.
#[track_caller]
pub fn unless_stalled(tolerated: Duration, mut check: impl FnMut() -> Result<(), String>) {
    let place = Location::caller();
    for attempt in 1..=ATTEMPTS {
        let gauge = Gauge::start();
        let Err(error) = check() else { return };
        let delay = gauge.longest_delay();
        assert!(
            delay > tolerated,
            "{error} (the machine has delayed threads by {delay:?} at most)"
        );
        // The test harness captures the output of `eprintln!`, but not this line.
        let _ = writeln!(
            io::stderr(),
            "{place}: attempt {attempt} of {ATTEMPTS} proves nothing: {error} (the machine has \
             delayed a thread by {delay:?})"
        );
    }
}
