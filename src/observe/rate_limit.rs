//! Rate limit for log lines.

use crate::protocol::Time;
use std::{mem::take, time::Duration};

/// Rate limit for one kind of log line. After a burst of lines, the minimum pause between two lines increases to 10 s,
/// 1 min, 6 min and 36 min.
pub(super) struct RateLimit {
    burst: u32,
    lines: u32,
    suppressed: u64,
    first: Time,
    last: Time,
}

impl RateLimit {
    pub(super) fn new(burst: u32, now: Time) -> Self {
        Self { burst, lines: 0, suppressed: 0, first: now, last: now }
    }

    fn pause_secs(&self) -> u64 {
        self.lines.checked_sub(self.burst).map_or(0, |step| 10 * 6_u64.pow(step.min(3)))
    }

    /// Decides whether to write a log line at `now`. Returns `None` if the line must be suppressed. Otherwise returns
    /// the number of lines suppressed before this line, and the two durations that [`poll`](Self::poll) also returns. A
    /// new burst begins if no line was written for twice the pause, and for at least 2 min.
    pub(super) fn handle(&mut self, now: Time) -> Option<(u64, Duration, Duration)> {
        if now.since(self.last).as_secs() >= (2 * self.pause_secs()).max(120) {
            (self.lines, self.first) = (0, now);
        }
        self.suppressed += 1;
        self.poll(now).map(|(lines, within, since)| (lines - 1, within, since))
    }

    /// Checks whether a summary of suppressed lines may be written at `now`. Returns `None` if no lines were
    /// suppressed, or if the pause has not passed. Otherwise returns the number of suppressed lines, the time since the
    /// last written line, and the time since the first line of the burst.
    pub(super) fn poll(&mut self, now: Time) -> Option<(u64, Duration, Duration)> {
        let is_due = self.suppressed > 0 && now.since(self.last).as_secs() >= self.pause_secs();
        let count = is_due.then(|| take(&mut self.suppressed))?;
        self.lines += 1;
        Some((count, now.since(std::mem::replace(&mut self.last, now)), now.since(self.first)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Time {
        Time::default().after(Duration::from_secs(secs))
    }

    #[test]
    fn persistent_events_are_suppressed_and_counted() {
        let mut rate_limit = RateLimit::new(1, at(0));
        let lines = |secs| Some((secs, rate_limit.handle(at(secs))?.0));
        let lines: Vec<_> = (0..3_600).filter_map(lines).collect();
        assert_eq!(lines, [(0, 0), (10, 9), (70, 59), (430, 359), (2_590, 2_159)]);
        let due = at(2_590 + 2_160);
        assert_eq!(rate_limit.poll(due).map(|(count, ..)| count), Some(1_009));
    }

    #[test]
    fn quiet_period_resets_the_burst() {
        let mut rate_limit = RateLimit::new(3, at(1));
        for _ in 0..3 {
            assert!(rate_limit.handle(at(1)).is_some());
        }
        assert_eq!((rate_limit.handle(at(2)), rate_limit.poll(at(3))), (None, None));
        let ten = Duration::from_secs(10);
        assert_eq!(rate_limit.poll(at(11)), Some((1, ten, ten)));
        assert_eq!(rate_limit.poll(at(12)), None, "no suppressed lines");
        assert_eq!(rate_limit.handle(at(13)), None);
        let quiet = at(11 + 120);
        assert_eq!(rate_limit.handle(quiet).map(|(count, ..)| count), Some(1));
        assert!(rate_limit.handle(quiet).is_some(), "a new burst");
    }
}
