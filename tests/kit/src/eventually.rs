//! Polling for a condition, instead of sleeping for a guessed time.

use std::thread;
use std::time::{Duration, Instant};

/// Interval between two checks of the condition.
const PAUSE: Duration = Duration::from_millis(2);

/// Returns as soon as `condition` is true. Checks it every 2 ms, and at least twice.
///
/// `limit` only bounds the duration of a failing test, so choose a generous one: a shared machine
/// may stall for seconds. The condition may block, and is never interrupted.
///
/// # Panics
///
/// If `condition` is still false after `limit`. The message contains `what`, which should name the
/// condition ("no key is left").
#[track_caller]
pub fn eventually(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() >= limit {
            assert!(condition(), "not within {limit:?}: {what}");
            return;
        }
        thread::sleep(PAUSE);
    }
}
