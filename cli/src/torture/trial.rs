//! One trial of each fault before the clients start: a command that never works is an error, and not a run without faults.

use super::fault::{Fault, PAUSE, TRIES};
use crate::exit::{Code, Failure};
use rustix::process::Signal;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Applies and heals each of the `faults` once, one after the other, then waits for `rest`. Returns early with the signal
/// that asks for the end.
///
/// # Errors
/// If a command fails `TRIES` times. The fault is mended first, since it may have been applied in part.
pub(super) fn trial(
    faults: &[Fault],
    rest: Duration,
    stop: &Receiver<Signal>,
) -> Result<Option<Signal>, Failure> {
    for (number, fault) in (1..).zip(faults) {
        let applied = apply(fault, stop);
        let healed = fault.mend();
        let signal = applied
            .map_err(|why| format!("fault {number} could not be applied in {TRIES} tries: {why}"));
        let healed =
            healed.map_err(|why| format!("fault {number} is NOT MENDED, do it by hand: {why}"));
        let signal =
            signal.and_then(|signal| healed.map(|()| signal)).map_err(|why| failure(&why))?;
        if signal.is_some() {
            return Ok(signal);
        }
    }
    let rest = if faults.is_empty() { Duration::ZERO } else { rest };
    Ok(signal_within(rest, stop))
}

/// Applies a fault, if need be several times: on a busy machine its command can fail now and then.
fn apply(fault: &Fault, stop: &Receiver<Signal>) -> Result<Option<Signal>, String> {
    let mut applied = fault.inflict();
    for _ in 1..TRIES {
        if applied.is_ok() {
            break;
        }
        if let Some(signal) = signal_within(PAUSE, stop) {
            return Ok(Some(signal));
        }
        applied = fault.inflict();
    }
    applied.map(|()| signal_within(Duration::ZERO, stop))
}

fn failure(why: &str) -> Failure {
    Failure::new(Code::FAILED, format!("{why}. No client was started"))
}

/// The signal that arrives within that time.
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
