//! Detects deadlocks. A simulation thread that waits for a mutex that it already holds never ends
//! its run.

use crate::mode::Mode;
use crate::rule::Rule;
use std::collections::BTreeMap;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The maximum duration of a run. A run usually takes a few milliseconds, or up to a second on a
/// busy machine.
const LONGEST: Duration = Duration::from_mins(3);

/// The runs in progress, by number. Each has a mode, a seed and a start time.
static RUNNING: Mutex<BTreeMap<u64, (Mode, u64, Instant)>> = Mutex::new(BTreeMap::new());

static STARTED: AtomicU64 = AtomicU64::new(0);

/// A run in progress. Dropping this value marks the run as ended.
pub(crate) struct RunningSeed(u64);

impl RunningSeed {
    pub(crate) fn new(mode: Mode, seed: u64) -> Self {
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        runs().insert(number, (mode, seed, Instant::now()));
        Self(number)
    }
}

impl Drop for RunningSeed {
    fn drop(&mut self) {
        runs().remove(&self.0);
    }
}

fn runs() -> MutexGuard<'static, BTreeMap<u64, (Mode, u64, Instant)>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread that ends the program with a message if a run takes too long.
pub fn watch() {
    thread::spawn(|| {
        loop {
            thread::sleep(Duration::from_secs(1));
            let stuck = runs().values().find(|(_, _, since)| since.elapsed() > LONGEST).copied();
            if let Some((mode, seed, _)) = stuck {
                println!("seed {seed}: {}: {}", mode.label(), Rule::Ends);
                println!("found after {} seeds", STARTED.load(Ordering::Relaxed));
                process::exit(1);
            }
        }
    });
}
