//! The log of one part of a run: the faults that were applied, and errors.

use harness::record::Fault;
use harness::service::Outage;
use harness::steps::Steps;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The divisor for the maximum share of faults that may fail to be applied: one fault in 20.
const MOST_MISSING: usize = 20;

#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Faults that have started.
    pub(crate) faults: Mutex<Vec<Fault>>,
    /// Forward clock steps.
    pub(crate) steps: Mutex<Steps>,
    pub(crate) outages: Mutex<Vec<Outage>>,
    /// Errors of faults that could not be applied.
    pub(crate) failures: Mutex<Vec<String>>,
}

impl Log {
    pub(crate) fn faults(&self) -> Vec<Fault> {
        lock(&self.faults).clone()
    }

    pub(crate) fn steps(&self) -> Steps {
        lock(&self.steps).clone()
    }

    pub(crate) fn outages(&self) -> Vec<Outage> {
        lock(&self.outages).clone()
    }

    /// Prints the faults that could not be applied. If there are many, adds them to `findings`. A
    /// few failures are not findings, because they do not concern the library.
    pub(crate) fn report_failures(&self, findings: &mut Vec<String>) {
        let failures = lock(&self.failures);
        for failure in failures.iter() {
            eprintln!("a fault could not be applied: {failure}");
        }
        if failures.len() * MOST_MISSING > lock(&self.faults).len() {
            findings.extend(failures.iter().cloned());
        }
    }
}

/// Locks a list, even if another thread panicked while it held the lock.
pub(crate) fn lock<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}
