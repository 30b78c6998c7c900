//! Tests of the in-process nodes (`quorlock_test::Nodes`): they act like real nodes, in time that the test
//! controls.

mod clocks;
mod controls;
mod fixture;
mod scenarios;
mod time;
mod wakeups;
mod work;

use std::time::Duration;

/// The longest wait for something that takes milliseconds on an idle machine.
const SOON: Duration = Duration::from_secs(20);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Polls `condition` until it holds; the runtime runs between two polls.
async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let started = tokio::time::Instant::now();
    while !condition() {
        assert!(started.elapsed() < SOON, "timed out after {SOON:?}: {what}");
        tokio::time::sleep(ms(2)).await;
    }
}
