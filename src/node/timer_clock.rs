//! Tokio's clock, as the rules of [`protocol`](crate::protocol) are told it.

use crate::protocol::Time;
use std::time::Duration;
use tokio::time::Instant;

/// What the clock reads at its origin: a runtime whose time stands still may be further back.
const ORIGIN: Time = Time::from_nanos(1 << 60);

/// Thirty years: the same as never.
const AGE: Duration = Duration::from_hours(24 * 365 * 30);

/// The clock of timers, and of what only paces connections. A test can let it stand still, and no safety
/// hangs on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimerClock {
    origin: Instant,
}

impl TimerClock {
    pub(super) fn new() -> Self {
        Self { origin: Instant::now() }
    }

    /// Reads the clock.
    pub(super) fn now(self) -> Time {
        self.time(Instant::now())
    }

    /// What it reads at `at`.
    pub(super) fn time(self, at: Instant) -> Time {
        match at.checked_duration_since(self.origin) {
            Some(after) => ORIGIN.after(after),
            None => ORIGIN.before(self.origin.saturating_duration_since(at)),
        }
    }

    /// When it reads `time`.
    pub(super) fn instant(self, time: Time) -> Instant {
        let instant = if time >= ORIGIN {
            self.origin.checked_add(time.since(ORIGIN))
        } else {
            self.origin.checked_sub(ORIGIN.since(time))
        };
        instant.unwrap_or_else(|| self.origin + AGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back_also_before_the_origin() {
        let clock = TimerClock::new();
        for nanos in [0, 1, 999_999_999, 5_000_000_001] {
            let span = Duration::from_nanos(nanos);
            let later = clock.origin + span;
            assert_eq!(clock.time(later), ORIGIN.after(span));
            assert_eq!(clock.instant(clock.time(later)), later);
            let earlier = clock.origin.checked_sub(span).unwrap_or(clock.origin);
            let before = clock.origin - earlier;
            assert_eq!(clock.time(earlier).after(before), ORIGIN);
            assert_eq!(clock.instant(clock.time(earlier)), earlier);
        }
        let never = clock.instant(Time::from_nanos(u64::MAX));
        assert!(never > clock.origin + AGE / 2);
    }
}
