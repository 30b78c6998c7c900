//! Clocks with their own rates, which can stop or step.

/// True time in nanoseconds since the start of the run. Only checks use it.
pub(crate) type Instant = u64;

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000 * US;
pub(crate) const S: u64 = 1_000 * MS;

const MILLION: u64 = 1_000_000;

/// A machine's clock as a function of true time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineClock {
    /// The clock showed `shown` at `since`. From then on, it runs at `rate` millionths of true
    /// time.
    since: Instant,
    shown: u64,
    rate: u64,
    /// The rate while the clock is not stopped.
    steady: u64,
}

impl MachineClock {
    pub(crate) fn new(shown: u64, rate: u64) -> Self {
        Self { since: 0, shown, rate, steady: rate }
    }

    pub(crate) fn read(&self, now: Instant) -> u64 {
        self.shown + (now - self.since) * self.rate / MILLION
    }

    /// The first instant at which the clock shows `time` or later, at or after its last change.
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

    /// Steps the clock at `now`; back if `by` is negative.
    pub(crate) fn step(&mut self, now: Instant, by: i64) {
        self.shown = self.read(now).saturating_add_signed(by);
        self.since = now;
    }

    /// Stops the clock at `now`.
    pub(crate) fn stop(&mut self, now: Instant) {
        self.step(now, 0);
        self.rate = 0;
    }

    /// Restarts the clock at `now`.
    pub(crate) fn resume(&mut self, now: Instant) {
        self.step(now, 0);
        self.rate = self.steady;
    }
}
