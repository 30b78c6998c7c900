//! Polling for a condition, instead of sleeping for a guessed time.

use std::thread;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(2);

/// Returns as soon as `condition` is true. Checks `condition` every 2 ms, and at least twice.
///
/// `limit` only bounds the duration of a failing test. Choose a generous limit, because a shared
/// machine may stall for seconds. The condition may block, and is never interrupted.
///
/// # Panics
///
/// Panics if `condition` is still false after `limit`. The message contains `what`, which should
/// name the condition ("no key is left").
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
