//! Clocks that run at rates of their own, and stand still or step.

/// True time: nanoseconds since the start of the run. Only the checkers know it.
pub(crate) type Instant = u64;

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000 * US;
pub(crate) const S: u64 = 1_000 * MS;

const MILLION: u64 = 1_000_000;

/// What a machine reads, as a function of true time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineClock {
    /// It showed `shown` at `since`, and has run at `rate` millionths of true time from then on.
    since: Instant,
    shown: u64,
    rate: u64,
    /// Its rate while it does not stand still.
    steady: u64,
}

impl MachineClock {
    pub(crate) fn new(shown: u64, rate: u64) -> Self {
        Self { since: 0, shown, rate, steady: rate }
    }

    pub(crate) fn read(&self, now: Instant) -> u64 {
        self.shown + (now - self.since) * self.rate / MILLION
    }

    /// The first instant at which it shows `time` or more, not before its last change.
    pub(crate) fn when(&self, time: u64) -> Instant {
        let ahead = u128::from(time.saturating_sub(self.shown)) * u128::from(MILLION);
        if ahead == 0 {
            return self.since;
        }
        if self.rate == 0 {
            return Instant::MAX;
        }
        let passed = ahead.div_ceil(u128::from(self.rate));
        u64::try_from(passed).map_or(Instant::MAX, |passed| self.since.saturating_add(passed))
    }

    /// Shows `by` more from `now` on, or less, if it is negative.
    pub(crate) fn step(&mut self, now: Instant, by: i64) {
        self.shown = self.read(now).saturating_add_signed(by);
        self.since = now;
    }

    /// Stands still from `now` on.
    pub(crate) fn stop(&mut self, now: Instant) {
        self.step(now, 0);
        self.rate = 0;
    }

    /// Runs again from `now` on.
    pub(crate) fn go_on(&mut self, now: Instant) {
        self.step(now, 0);
        self.rate = self.steady;
    }
}
