//! Waiting for a condition without sleeping for a guessed time.

use std::thread;
use std::time::{Duration, Instant};

/// The pause between two looks at the condition.
const PAUSE: Duration = Duration::from_millis(2);

/// Returns as soon as `condition` holds, looking every 2 ms and at least twice.
///
/// `limit` only bounds the wait of a test that fails, so be generous: a shared machine may stall
/// for seconds. The condition may block; it is never interrupted.
///
/// # Panics
///
/// When `condition` still does not hold after `limit`; the message contains `what`, which should
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
