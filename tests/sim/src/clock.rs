//! Clocks that run at rates of their own.

use crate::protocol::Time;

/// True time: nanoseconds since the start of the run. Only the checker knows it.
pub(crate) type Instant = u64;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const S: u64 = 1_000 * MS;

const MILLION: u64 = 1_000_000;

/// What a process reads, as a function of true time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// It showed `shown` at `since`, and has run at `rate` millionths of true time from then on.
    since: Instant,
    shown: u64,
    rate: u64,
}

impl Clock {
    pub(crate) fn new(shown: u64, rate: u64) -> Self {
        Self { since: 0, shown, rate }
    }

    /// The same from a whole second on.
    pub(crate) fn on_the_second(self) -> Self {
        Self { shown: self.shown - self.shown % S, ..self }
    }

    pub(crate) fn read(&self, now: Instant) -> u64 {
        self.shown + (now - self.since) * self.rate / MILLION
    }

    pub(crate) fn time(&self, now: Instant) -> Time {
        Time::from_nanos(self.read(now))
    }

    /// The first instant at which it shows `time` or more, not before its last change.
    pub(crate) fn when(&self, time: Time) -> Instant {
        let ahead = time.as_nanos().saturating_sub(self.shown);
        // Ends of time stay what they are.
        let passed = ahead.checked_mul(MILLION).map(|product| product.div_ceil(self.rate));
        passed.map_or(Instant::MAX, |passed| self.since + passed)
    }

    /// Shows `by` more from `now` on, or less, if it is negative.
    pub(crate) fn jump(&mut self, now: Instant, by: i64) {
        self.shown = self.read(now).saturating_add_signed(by);
        self.since = now;
    }
}
