//! Tries each fault before the clients start. A broken command then causes an error, instead of a run without faults.

use super::fault::{Fault, PAUSE, TRIES};
use super::with_failed_mend;
use crate::exit::{Code, Failure};
use rustix::process::Signal;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Applies and mends each fault in turn, then waits for `rest`. If a signal arrives first, returns the signal.
///
/// # Errors
/// Fails if a command fails `TRIES` times. Even then, the fault is mended first, because it may be partly in effect.
pub(super) fn trial(
    faults: &[Fault],
    rest: Duration,
    stop: &Receiver<Signal>,
) -> Result<Option<Signal>, Failure> {
    for (number, fault) in (1..).zip(faults) {
        let applied = apply(fault, stop);
        let mended = fault.mend();
        match (applied, mended) {
            (Ok(None), Ok(())) => {}
            (Ok(signal), Ok(())) => return Ok(signal),
            (Ok(_), Err(why)) => {
                let why = format!("fault {number} is NOT MENDED, repair the node manually: {why}");
                return Err(failure(&why));
            }
            (Err(why), mended) => {
                let why = with_failed_mend(why, mended);
                let what = format!("fault {number} could not be applied in {TRIES} attempts");
                return Err(failure(&format!("{what}: {why}")));
            }
        }
    }
    let rest = if faults.is_empty() { Duration::ZERO } else { rest };
    Ok(signal_within(rest, stop))
}

/// Applies a fault in up to `TRIES` attempts, because commands can fail occasionally on a busy machine. If a signal
/// arrives first, returns the signal.
fn apply(fault: &Fault, stop: &Receiver<Signal>) -> Result<Option<Signal>, String> {
    let mut applied = fault.apply();
    for _ in 1..TRIES {
        if applied.is_ok() {
            break;
        }
        if let Some(signal) = signal_within(PAUSE, stop) {
            return Ok(Some(signal));
        }
        applied = fault.apply();
    }
    applied.map(|()| signal_within(Duration::ZERO, stop))
}

fn failure(why: &str) -> Failure {
    Failure::new(Code::FAILED, format!("{why}; no client was started"))
}

/// Waits for `time`. If a signal arrives first, returns the signal.
fn signal_within(time: Duration, stop: &Receiver<Signal>) -> Option<Signal> {
    match stop.recv_timeout(time) {
        Ok(signal) => Some(signal),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => {
            std::thread::sleep(time);
            None
        }
    }
}
