//! Nodes in the process of a test (`quorlock_test::Nodes`): they do what real nodes do, in time that the test moves.

mod clocks;
mod scenes;
mod stage;
mod time;
mod verbs;
mod wakeups;
mod work;

use std::time::Duration;

/// How long to wait for something that takes milliseconds, on the slowest machine.
const SOON: Duration = Duration::from_secs(20);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Waits until `condition` holds, and lets the runtime run meanwhile.
async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = tokio::time::Instant::now();
    while !condition() {
        assert!(begun.elapsed() < SOON, "it did not happen in {SOON:?}: {what}");
        tokio::time::sleep(ms(2)).await;
    }
}
