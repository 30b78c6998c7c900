//! Times, ttls and drift allowances, and the validity of a lease that results from them.
//!
//! All arithmetic saturates: durations neither wrap nor panic.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

/// A reading of the client's clock, in nanoseconds since an origin that is fixed at boot. Times more than 584 years
/// after the origin saturate.
///
/// The value is stored plus one, so that `Option<Time>` has the same size as `Time`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Time(NonZeroU64);

impl Time {
    /// The latest time that can be represented. Sums that would be later saturate at this time.
    pub(crate) const END: Self = Self(NonZeroU64::MAX);

    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    pub(crate) const fn as_nanos(self) -> u64 {
        self.0.get() - 1
    }

    pub(crate) fn after(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }

    pub(crate) fn before(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self::from_nanos(self.as_nanos().saturating_sub(nanos))
    }

    /// Returns the duration from `earlier` to this time, or zero if `earlier` is not before this time.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }
}

/// The default time is the origin of the clock.
impl Default for Time {
    fn default() -> Self {
        Self::from_nanos(0)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Time({})", self.as_nanos())
    }
}

/// The lifetime of a key as sent to the nodes (`PX`): whole milliseconds, from 1 to [`Ttl::MAX_MS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ttl(u64);

impl Ttl {
    /// A hundred years in milliseconds. This is longer than any lease and far below the limit of `PX` in Redis: the sum
    /// of `PX` and the wall clock must fit in 63 bits.
    pub(crate) const MAX_MS: u64 = 100 * 365 * 24 * 3600 * 1000;

    pub(crate) const SHORTEST: Self = Self(1);

    pub(crate) const LONGEST: Self = Self(Self::MAX_MS);

    /// Truncates `duration` to whole milliseconds, so that nodes never get a longer ttl than requested. Returns `None`
    /// below 1 ms and above [`LONGEST`](Self::LONGEST).
    pub(crate) fn from_duration(duration: Duration) -> Option<Self> {
        let ms = u64::try_from(duration.as_millis()).ok();
        ms.filter(|ms| (1..=Self::MAX_MS).contains(ms)).map(Self)
    }

    /// Returns the shortest ttl that is not shorter than `duration`, for keys that must exist for all of `duration`.
    /// Rounding up by less than a millisecond is safe; rounding down is not. Returns [`LONGEST`](Self::LONGEST) if
    /// `duration` is longer.
    pub(crate) fn covering(duration: Duration) -> Self {
        let ms = duration.as_nanos().div_ceil(1_000_000);
        Self(u64::try_from(ms).unwrap_or(Self::MAX_MS).clamp(1, Self::MAX_MS))
    }

    /// Returns the longest ttl that is not longer than `duration`, for leases that must not outlast `duration`. Returns
    /// `None` below 1 ms.
    pub(crate) fn within(duration: Duration) -> Option<Self> {
        Self::from_duration(duration.min(Self::LONGEST.as_duration()))
    }

    pub(crate) fn as_millis(self) -> u64 {
        self.0
    }

    pub(crate) fn as_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

/// The allowance for clocks that run at different rates: ttl x factor + constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drift {
    parts_per_million: u32,
    constant: Duration,
}

impl Drift {
    /// 1 % and 2 ms, as in the reference implementation that the Redlock page names: `CLOCK_DRIFT_FACTOR = 0.01`, and 2
    /// ms for the precision of Redis expiry with small ttls.
    pub(crate) const DEFAULT: Self =
        Self { parts_per_million: 10_000, constant: Duration::from_millis(2) };

    /// Sets the factor, rounded up to a millionth. Returns `None` unless 0 <= `factor` < 1.
    pub(crate) fn with_factor(self, factor: f64) -> Option<Self> {
        if !(0.0..1.0).contains(&factor) {
            return None;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // in 0..=1_000_000
        let parts_per_million = (factor * 1e6).ceil() as u32;
        Some(Self { parts_per_million, ..self })
    }

    pub(crate) fn with_constant(self, constant: Duration) -> Self {
        Self { constant, ..self }
    }

    pub(crate) fn parts_per_million(self) -> u32 {
        self.parts_per_million
    }

    pub(crate) fn constant(self) -> Duration {
        self.constant
    }

    /// Returns the allowance for `ttl`. The product of ttl and factor is rounded up to a nanosecond.
    pub(crate) fn allowance(self, ttl: Ttl) -> Duration {
        self.share(ttl).saturating_add(self.constant)
    }

    /// Returns how long to ignore the grants of a node that may have lost keys. Each key had at most `max_ttl` to live.
    /// The clocks of the holder and of this client may run at different rates than the node's clock, so the drift
    /// factor is added twice. One second is added because nodes report some times in whole seconds.
    pub(crate) fn quarantine(self, max_ttl: Ttl) -> Duration {
        let drifted = max_ttl.as_duration().saturating_add(self.share(max_ttl).saturating_mul(2));
        drifted.saturating_add(Duration::from_secs(1))
    }

    /// Returns the shortest ttl whose validity is at least `validity`, or `None` if no ttl is long enough.
    pub(crate) fn ttl_for(self, validity: Duration) -> Option<Ttl> {
        // Nanoseconds of validity per millisecond of ttl. One millionth of a millisecond is 1 ns.
        let left_per_ms = 1_000_000 - u128::from(self.parts_per_million);
        if left_per_ms == 0 {
            return None;
        }
        let ms = (validity.as_nanos() + self.constant.as_nanos()).div_ceil(left_per_ms);
        let ms = u64::try_from(ms).ok().filter(|ms| *ms <= Ttl::MAX_MS)?;
        Some(Ttl(ms.max(1)))
    }

    fn share(self, ttl: Ttl) -> Duration {
        let nanos = ttl.as_duration().as_nanos() * u128::from(self.parts_per_million);
        let nanos = u64::try_from(nanos.div_ceil(1_000_000)).unwrap_or(u64::MAX);
        Duration::from_nanos(nanos)
    }
}

/// Returns the end of the validity: `t1` + `ttl` - drift allowance (I4). If the drift allowance is larger than the ttl,
/// returns `t1`, so the lease is never valid.
pub(crate) fn valid_until(t1: Time, ttl: Ttl, drift: Drift) -> Time {
    t1.after(ttl.as_duration().saturating_sub(drift.allowance(ttl)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn ttl_is_truncated_to_milliseconds_within_range() {
        let cases = [
            (Duration::ZERO, None),
            (Duration::from_micros(999), None),
            (ms(1), Some(1)),
            (Duration::from_micros(1_999), Some(1)),
            (ms(Ttl::MAX_MS), Some(Ttl::MAX_MS)),
            (ms(Ttl::MAX_MS + 1), None),
            (ms(u64::MAX), None),
            (Duration::MAX, None),
        ];
        for (given, expected) in cases {
            assert_eq!(Ttl::from_duration(given).map(Ttl::as_millis), expected, "{given:?}");
        }
    }

    #[test]
    fn time_before_origin_saturates() {
        let time = Time::from_nanos(9_000_000);
        assert_eq!(time.before(ms(2)), Time::from_nanos(7_000_000));
        assert_eq!(time.before(ms(10)), Time::from_nanos(0));
        assert_eq!(time.before(Duration::MAX), Time::from_nanos(0));
    }

    #[test]
    fn longest_ttl_is_a_hundred_years() {
        assert_eq!(ms(Ttl::MAX_MS), Duration::from_hours(100 * 365 * 24));
    }

    #[test]
    fn default_drift_is_one_percent_and_two_milliseconds() {
        let ttl = Ttl::from_duration(ms(10_000)).expect("a good ttl");
        assert_eq!(Drift::DEFAULT.constant(), ms(2));
        assert_eq!(Drift::DEFAULT.allowance(ttl), ms(102));
        assert_eq!(valid_until(Time::from_nanos(7), ttl, Drift::DEFAULT).as_nanos(), 9_898_000_007);
        assert_eq!(Drift::DEFAULT.quarantine(ttl), ms(11_200));
    }

    #[test]
    fn ttl_for_validity_is_exact_at_the_limits() {
        let exact = Drift { parts_per_million: 0, constant: Duration::ZERO };
        let (ns, max) = (Duration::from_nanos(1), ms(Ttl::MAX_MS));
        let cases = [
            (Drift::DEFAULT, ms(9_898), Some(10_000)),
            (Drift::DEFAULT, ms(9_898) + ns, Some(10_001)),
            (Drift::DEFAULT, Duration::ZERO, Some(3)),
            (Drift::DEFAULT, max, None),
            (Drift::DEFAULT, Duration::MAX, None),
            (exact, Duration::ZERO, Some(1)),
            (exact, ns, Some(1)),
            (exact, ms(1), Some(1)),
            (exact, ms(1) + ns, Some(2)),
            (exact, max, Some(Ttl::MAX_MS)),
            (exact, max + ns, None),
            (exact.with_constant(ns), ms(1), Some(2)),
            (exact.with_constant(Duration::MAX), Duration::ZERO, None),
            (exact.with_constant(Duration::MAX), Duration::MAX, None),
            (exact.with_factor(0.999_999).expect("below 1"), ns, Some(1)),
            (exact.with_factor(0.999_999).expect("below 1"), Duration::from_nanos(2), Some(2)),
            // Rounding up to a millionth makes the factor 1.
            (exact.with_factor(0.999_999_9).expect("below 1"), ns, None),
        ];
        for (drift, validity, expected) in cases {
            let found = drift.ttl_for(validity).map(Ttl::as_millis);
            assert_eq!(found, expected, "{validity:?} with {drift:?}");
        }
    }

    #[test]
    fn drift_factor_must_be_between_zero_and_one() {
        for bad in [-0.1, 1.0, 2.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(Drift::DEFAULT.with_factor(bad), None, "{bad}");
        }
        assert_eq!(Drift::DEFAULT.with_factor(0.01), Some(Drift::DEFAULT));
    }

    #[test]
    fn drift_larger_than_ttl_is_never_valid() {
        let t1 = Time::from_nanos(1_000);
        let ttl = Ttl::from_duration(ms(1)).expect("a good ttl");
        assert_eq!(valid_until(t1, ttl, Drift::DEFAULT), t1, "1 ms ttl, 2.01 ms drift");
        assert_eq!(valid_until(t1, ttl, Drift::DEFAULT.with_constant(Duration::MAX)), t1);
    }

    proptest! {
        #[test]
        fn time_sums_saturate(t in any::<u64>(), s in any::<u64>(), n in 0..1_000_000_000u32) {
            let start = Time::from_nanos(t);
            let later = start.after(Duration::new(s, n));
            prop_assert!(later >= start);
            prop_assert!(later.since(start) <= Duration::new(s, n));
            prop_assert_eq!(start.since(later), Duration::ZERO);
        }

        #[test]
        fn validity_ends_between_t1_and_expiry(
            t in any::<u64>(), ttl_ms in 1..=Ttl::MAX_MS, factor in 0.0..1.0f64, constant in any::<u64>(),
        ) {
            let t1 = Time::from_nanos(t);
            let ttl = Ttl::from_duration(ms(ttl_ms)).expect("in range");
            let drift = Drift::DEFAULT.with_factor(factor).expect("in range").with_constant(ms(constant));
            let end = valid_until(t1, ttl, drift);
            prop_assert!(end >= t1);
            prop_assert!(end <= t1.after(ttl.as_duration()));
            // The ttl exceeds the validity by at least the allowance, unless the ttl is smaller than the allowance.
            let allowed = t1.after(ttl.as_duration()).since(end);
            let saturated = t1.after(ttl.as_duration()) == Time::END;
            prop_assert!(saturated || end == t1 || allowed >= drift.allowance(ttl));
        }

        #[test]
        fn covering_ttl_is_the_shortest_sufficient(nanos in any::<u128>()) {
            let most = Duration::from_millis(Ttl::MAX_MS).as_nanos();
            let nanos = nanos % (2 * most);
            let duration = Duration::from_nanos_u128(nanos);
            let ttl = Ttl::covering(duration);
            prop_assert!(nanos > most || ttl.as_duration() >= duration, "a key must not end early");
            prop_assert!(ttl == Ttl::SHORTEST || ttl.as_duration() < duration + ms(1));
        }

        #[test]
        fn ttl_for_validity_is_the_shortest_sufficient(
            of in 1..=Ttl::MAX_MS, off in 0..=1_000_000u64, factor in 0.0..1.0f64, constant in any::<u64>(),
        ) {
            let drift = Drift::DEFAULT.with_factor(factor).expect("in range");
            // The shift varies the constant from nanoseconds to decades.
            let drift = drift.with_constant(Duration::from_nanos(constant >> (of % 64)));
            let validity = |ttl: Ttl| ttl.as_duration().saturating_sub(drift.allowance(ttl));
            let asked = validity(Ttl(of)).saturating_sub(Duration::from_nanos(off));
            if let Some(ttl) = drift.ttl_for(asked) {
                prop_assert!(validity(ttl) >= asked, "{ttl:?} gives {:?}", validity(ttl));
                let is_shortest = ttl == Ttl::SHORTEST || validity(Ttl(ttl.0 - 1)) < asked;
                prop_assert!(is_shortest || asked.is_zero(), "{ttl:?} for {asked:?}");
            } else {
                prop_assert!(asked.is_zero(), "a ttl of {of} ms has that validity");
            }
        }

        #[test]
        fn any_duration_gives_ttl_or_error(s in any::<u64>(), n in 0..1_000_000_000u32) {
            let given = Duration::new(s, n);
            match Ttl::from_duration(given) {
                Some(ttl) => prop_assert!(ttl.as_duration() <= given && given < ttl.as_duration() + ms(1)),
                None => prop_assert!(given < ms(1) || given > ms(Ttl::MAX_MS)),
            }
        }
    }
}
