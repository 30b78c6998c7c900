//! Timeouts of connections: by tokio's clock, or by the client's in a simulated world.

#[cfg(feature = "test-util")]
use crate::time::{Clock, Wakeup};
use std::time::Duration;
use tokio::time::Instant;

/// The clock for timeouts. Tests can pause tokio's clock, and no safety depends on it.
#[derive(Clone)]
pub(crate) enum TimerClock {
    Tokio,
    #[cfg(feature = "test-util")]
    Client(Clock),
}

impl TimerClock {
    /// Awaits `task` for at most `limit`. Returns its output, and the rest of `limit`.
    pub(crate) async fn timeout<T>(
        &self,
        limit: Duration,
        task: impl Future<Output = T>,
    ) -> Option<(T, Duration)> {
        match self {
            Self::Tokio => {
                let begun = Instant::now();
                let output = tokio::time::timeout(limit, task).await.ok()?;
                Some((output, limit.saturating_sub(begun.elapsed())))
            }
            #[cfg(feature = "test-util")]
            Self::Client(clock) => {
                let end = clock.now().after(limit);
                tokio::select! {
                    biased;
                    output = task => Some((output, end.since(clock.now()))),
                    () = Wakeup::at(clock, end) => None,
                }
            }
        }
    }
}
