//! How often lines of one kind are written: what goes on for hours is told a few times, and not a million.

use crate::protocol::Time;
use std::time::Duration;

/// What comes sooner than this after a line is held back. Each time there is some, the pause gets
/// [`GROWTH`] times as long, up to [`LONGEST`].
const SHORTEST: Duration = Duration::from_secs(10);
const GROWTH: u32 = 6;
const LONGEST: Duration = Duration::from_secs(36 * 60);

/// After so long without an event, what comes is something new.
const QUIET: Duration = Duration::from_secs(2 * 60);

/// The pace of one kind of line.
#[derive(Debug)]
pub(super) struct Pace {
    /// So many lines are written before any is held back.
    burst: u32,
    /// How many of them were.
    written: u32,
    pause: Duration,
    /// No line before then.
    next: Time,
    last_event: Time,
    held_back: u64,
    /// When the last line was written, and the first of all that goes on.
    last_line: Time,
    first: Time,
}

/// What was held back since the last line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldBack {
    pub(super) count: u64,
    /// Within what time.
    pub(super) within: Duration,
    /// For how long it goes on.
    pub(super) since: Duration,
}

impl Pace {
    /// Of lines of which so many may be written at once.
    pub(super) fn new(burst: u32) -> Self {
        let never = Time::default();
        Self {
            burst,
            written: 0,
            pause: SHORTEST,
            next: never,
            last_event: never,
            held_back: 0,
            last_line: never,
            first: never,
        }
    }

    /// Something has happened at `now`. What was held back before, if a line is to be written; `None` if this
    /// is held back, too.
    pub(super) fn handle(&mut self, now: Time) -> Option<HeldBack> {
        if now.since(self.last_event) >= QUIET.max(self.pause) {
            (self.written, self.pause, self.next, self.first) = (0, SHORTEST, now, now);
        }
        self.last_event = now;
        if self.written >= self.burst && now < self.next {
            self.held_back += 1;
            return None;
        }
        Some(self.write(now))
    }

    /// What was held back, if it is time to tell it.
    pub(super) fn poll(&mut self, now: Time) -> Option<HeldBack> {
        (self.held_back > 0 && now >= self.next).then(|| self.write(now))
    }

    fn write(&mut self, now: Time) -> HeldBack {
        let (count, within) = (self.held_back, now.since(self.last_line));
        let told = HeldBack { count, within, since: now.since(self.first) };
        if self.written >= self.burst {
            self.pause = (self.pause * GROWTH).min(LONGEST);
        }
        self.written = self.written.saturating_add(1);
        (self.held_back, self.last_line, self.next) = (0, now, now.after(self.pause));
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
    fn what_goes_on_for_an_hour_is_told_a_few_times_with_what_was_held_back() {
        let mut pace = Pace::new(1);
        let lines: Vec<_> =
            (0..3_600).filter_map(|secs| Some((secs, pace.handle(at(secs))?.count))).collect();
        assert_eq!(lines, [(0, 0), (10, 9), (70, 59), (430, 359), (2_590, 2_159)]);
        let more = pace.poll(at(2_590 + 2_160));
        assert_eq!(more.map(|told| told.count), Some(1_009), "it is told in the end");
    }

    #[test]
    fn after_some_quiet_it_is_told_at_once_and_a_burst_is_not_held_back() {
        let mut pace = Pace::new(3);
        for _ in 0..3 {
            assert!(pace.handle(at(1)).is_some());
        }
        assert_eq!((pace.handle(at(2)), pace.poll(at(3))), (None, None));
        let told = pace.poll(at(11)).expect("it is time");
        let ten = Duration::from_secs(10);
        assert_eq!((told.count, told.within, told.since), (1, ten, ten));
        assert_eq!(pace.poll(at(12)), None, "nothing was held back");
        assert_eq!(pace.handle(at(13)), None);
        let long = 13 + QUIET.as_secs();
        assert_eq!(pace.handle(at(long)).map(|told| told.count), Some(1));
        assert!(pace.handle(at(long)).is_some(), "a new burst");
    }
}
