//! Tests that the in-process nodes (`quorlock_test::Nodes`) behave like real nodes, while the test controls their time.

mod clocks;
mod controls;
mod fixture;
mod scenarios;
mod time;
mod wakeups;
mod work;

use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let started = tokio::time::Instant::now();
    while !condition() {
        assert!(started.elapsed() < SOON, "timed out after {SOON:?}: {what}");
        tokio::time::sleep(ms(2)).await;
    }
}
