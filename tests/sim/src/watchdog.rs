//! Runs that stand still: a thread of the simulation that waits for a lock which it holds itself ends no run.

use crate::mode::Mode;
use crate::rule::Rule;
use std::collections::BTreeMap;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A run takes some milliseconds, and on a machine that does much else a second. One that has taken so long will never end.
const LONGEST: Duration = Duration::from_mins(3);

/// Runs under way, by number.
static UNDER_WAY: Mutex<BTreeMap<u64, (Mode, u64, Instant)>> = Mutex::new(BTreeMap::new());

/// How many were begun.
static BEGUN: AtomicU64 = AtomicU64::new(0);

/// A run that is under way until this is dropped.
pub(crate) struct UnderWay(u64);

impl UnderWay {
    pub(crate) fn new(mode: Mode, seed: u64) -> Self {
        let number = BEGUN.fetch_add(1, Ordering::Relaxed);
        runs().insert(number, (mode, seed, Instant::now()));
        Self(number)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        runs().remove(&self.0);
    }
}

fn runs() -> MutexGuard<'static, BTreeMap<u64, (Mode, u64, Instant)>> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on, a run that does not end ends this program, which says so: nothing else can end it.
pub fn watch() {
    thread::spawn(|| {
        loop {
            thread::sleep(Duration::from_secs(1));
            let stuck = runs().values().find(|(_, _, since)| since.elapsed() > LONGEST).copied();
            if let Some((mode, seed, _)) = stuck {
                println!("seed {seed}: {}: {}", mode.label(), Rule::Ends);
                println!("found after {} seeds", BEGUN.load(Ordering::Relaxed));
                process::exit(1);
            }
        }
    });
}
