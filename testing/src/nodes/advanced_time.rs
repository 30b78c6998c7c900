//! The monotonic time of in-process nodes and their clients.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Initial time: 30 days, so that subtracting a duration from a time does not saturate at zero.
pub(super) const START: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Maximum total advance in nanoseconds (292 years), so that the sum of a time and a timeout does not
/// overflow.
const FARTHEST: u64 = u64::MAX / 2;

/// Tokio's clock plus all durations by which a test has advanced it. The time never decreases, even
/// if several runtimes read the clock and the clock of one runtime is paused.
pub(super) struct AdvancedTime {
    origin: Instant,
    ahead_ns: AtomicU64,
    latest_ns: AtomicU64,
}

impl AdvancedTime {
    pub(super) fn new() -> Self {
        Self { origin: Instant::now(), ahead_ns: AtomicU64::new(0), latest_ns: AtomicU64::new(0) }
    }

    pub(super) fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let add = |ahead: u64| Some(ahead.saturating_add(by).min(FARTHEST));
        let _ = self.ahead_ns.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add);
    }

    pub(super) fn now(&self) -> Duration {
        let passed = Instant::now().saturating_duration_since(self.origin);
        let ahead = Duration::from_nanos(self.ahead_ns.load(Ordering::SeqCst));
        let now = u64::try_from((START + passed + ahead).as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.latest_ns.fetch_max(now, Ordering::SeqCst).max(now))
    }
}
