//! What was done in a part, as it is done.

use harness::record::Fault;
use harness::service::Ailment;
use harness::steps::Steps;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One fault in so many may fail to be made.
const MOST_MISSING: usize = 20;

/// The log of a part.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Those that have begun or are over.
    pub(crate) faults: Mutex<Vec<Fault>>,
    /// By how much clocks have stepped.
    pub(crate) steps: Mutex<Steps>,
    /// When nodes were not well.
    pub(crate) ailments: Mutex<Vec<Ailment>>,
    /// What could not be done.
    pub(crate) failures: Mutex<Vec<String>>,
}

impl Log {
    /// The faults so far.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        open(&self.faults).clone()
    }

    /// The steps so far.
    pub(crate) fn steps(&self) -> Steps {
        open(&self.steps).clone()
    }

    /// When nodes were not well, so far.
    pub(crate) fn ailments(&self) -> Vec<Ailment> {
        open(&self.ailments).clone()
    }

    /// That a fault could not be made says nothing of the library; but they must not all be missing.
    pub(crate) fn tell_failures(&self, findings: &mut Vec<String>) {
        let failures = open(&self.failures);
        for failure in failures.iter() {
            eprintln!("a fault could not be made: {failure}");
        }
        if failures.len() * MOST_MISSING > open(&self.faults).len() {
            findings.extend(failures.iter().cloned());
        }
    }
}

/// What was noted by a thread that has panicked since still holds.
pub(crate) fn open<T>(noted: &Mutex<T>) -> MutexGuard<'_, T> {
    noted.lock().unwrap_or_else(PoisonError::into_inner)
}
