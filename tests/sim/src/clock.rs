//! Simulated clocks of machines. Each clock runs at its own rate, and can stop or step.

/// A point in simulated time, in nanoseconds since the start of the run, or a duration in
/// nanoseconds. Clients and nodes see only their own clocks, which deviate from simulated time.
pub(crate) type Instant = u64;

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000 * US;
pub(crate) const S: u64 = 1_000 * MS;

const MILLION: u64 = 1_000_000;

/// A machine's clock, as a function of simulated time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineClock {
    /// The simulated time at which the clock showed `shown`. Since then, the clock has run at
    /// `rate` millionths of the exact speed.
    since: Instant,
    shown: u64,
    rate: u64,
    /// The rate that a stopped clock returns to when it resumes.
    steady: u64,
}

impl MachineClock {
    pub(crate) fn new(shown: u64, rate: u64) -> Self {
        Self { since: 0, shown, rate, steady: rate }
    }

    pub(crate) fn read(&self, now: Instant) -> u64 {
        self.shown + (now - self.since) * self.rate / MILLION
    }

    /// Returns the first instant since the clock's last change at which the clock shows `time` or
    /// later. Returns [`Instant::MAX`] if the clock is stopped and never shows `time`.
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

    /// Sets the clock forward by `by` nanoseconds at `now`, or back if `by` is negative.
    pub(crate) fn step(&mut self, now: Instant, by: i64) {
        self.shown = self.read(now).saturating_add_signed(by);
        self.since = now;
    }

    pub(crate) fn stop(&mut self, now: Instant) {
        self.step(now, 0);
        self.rate = 0;
    }

    pub(crate) fn resume(&mut self, now: Instant) {
        self.step(now, 0);
        self.rate = self.steady;
    }
}
