//! Rate limit of log lines.

use crate::protocol::Time;
use std::time::Duration;

/// Minimum pause between two lines. Each time lines were suppressed, the pause grows by [`GROWTH`], up to [`LONGEST`].
const SHORTEST: Duration = Duration::from_secs(10);
const GROWTH: u32 = 6;
const LONGEST: Duration = Duration::from_secs(36 * 60);

/// After this time without an event, the rate limit is reset.
const QUIET: Duration = Duration::from_secs(2 * 60);

/// Rate limit for one kind of line.
#[derive(Debug)]
pub(super) struct RateLimit {
    /// Number of lines written before any is suppressed.
    burst: u32,
    /// Number of lines written.
    written: u32,
    pause: Duration,
    /// Time of the next line, at the earliest.
    next: Time,
    last_event: Time,
    suppressed: u64,
    /// Time of the last line, and of the first one since the last reset.
    last_line: Time,
    first: Time,
}

/// Lines suppressed since the last line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Suppressed {
    pub(super) count: u64,
    /// Time since the last line.
    pub(super) within: Duration,
    /// Time since the first line.
    pub(super) since: Duration,
}

impl RateLimit {
    /// Allows `burst` lines without a pause.
    pub(super) fn new(burst: u32) -> Self {
        let never = Time::default();
        Self {
            burst,
            written: 0,
            pause: SHORTEST,
            next: never,
            last_event: never,
            suppressed: 0,
            last_line: never,
            first: never,
        }
    }

    /// Handles an event at `now`. Returns the suppressed lines if a line is to be written, `None` if this one is
    /// suppressed.
    pub(super) fn handle(&mut self, now: Time) -> Option<Suppressed> {
        if now.since(self.last_event) >= QUIET.max(self.pause) {
            (self.written, self.pause, self.next, self.first) = (0, SHORTEST, now, now);
        }
        self.last_event = now;
        if self.written >= self.burst && now < self.next {
            self.suppressed += 1;
            return None;
        }
        Some(self.write(now))
    }

    /// Returns the suppressed lines, if they are due to be reported.
    pub(super) fn poll(&mut self, now: Time) -> Option<Suppressed> {
        (self.suppressed > 0 && now >= self.next).then(|| self.write(now))
    }

    fn write(&mut self, now: Time) -> Suppressed {
        let (count, within) = (self.suppressed, now.since(self.last_line));
        let told = Suppressed { count, within, since: now.since(self.first) };
        if self.written >= self.burst {
            self.pause = (self.pause * GROWTH).min(LONGEST);
        }
        self.written = self.written.saturating_add(1);
        (self.suppressed, self.last_line, self.next) = (0, now, now.after(self.pause));
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Time {
        Time::default().after(Duration::from_secs(10_000 + secs))
    }

    #[test]
    fn persistent_events_are_suppressed_and_counted() {
        let mut rate_limit = RateLimit::new(1);
        let lines: Vec<_> = (0..3_600)
            .filter_map(|secs| Some((secs, rate_limit.handle(at(secs))?.count)))
            .collect();
        assert_eq!(lines, [(0, 0), (10, 9), (70, 59), (430, 359), (2_590, 2_159)]);
        let more = rate_limit.poll(at(2_590 + 2_160));
        assert_eq!(
            more.map(|told| told.count),
            Some(1_009),
            "suppressed lines are reported eventually"
        );
    }

    #[test]
    fn quiet_period_resets_the_burst() {
        let mut rate_limit = RateLimit::new(3);
        for _ in 0..3 {
            assert!(rate_limit.handle(at(1)).is_some());
        }
        assert_eq!((rate_limit.handle(at(2)), rate_limit.poll(at(3))), (None, None));
        let told = rate_limit.poll(at(11)).expect("due");
        let ten = Duration::from_secs(10);
        assert_eq!((told.count, told.within, told.since), (1, ten, ten));
        assert_eq!(rate_limit.poll(at(12)), None, "no suppressed lines");
        assert_eq!(rate_limit.handle(at(13)), None);
        let long = 13 + QUIET.as_secs();
        assert_eq!(rate_limit.handle(at(long)).map(|told| told.count), Some(1));
        assert!(rate_limit.handle(at(long)).is_some(), "a new burst");
    }
}
