//! Tests that the in-process nodes (`quorlock_test::Nodes`) behave like real nodes, while the test controls their time.

mod clocks;
mod controls;
mod fixture;
mod scenarios;
mod time;
mod wakeups;
mod work;

use std::time::Duration;

/// How long to wait for a condition that becomes true within milliseconds on an idle machine.
const SOON: Duration = Duration::from_secs(20);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Waits until `condition` returns true. The runtime runs other tasks between two calls.
async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let started = tokio::time::Instant::now();
    while !condition() {
        assert!(started.elapsed() < SOON, "timed out after {SOON:?}: {what}");
        tokio::time::sleep(ms(2)).await;
    }
}
