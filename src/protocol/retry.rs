//! Delays between the attempts of an acquire.
//!
//! Users choose a [`RetryPolicy`]. Each acquire creates a [`Schedule`] from the policy, which returns delays until the
//! retries end. The caller passes the random numbers for jitter.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The minimum delay. It keeps an acquire from retrying in a busy loop, whatever the policy.
pub(super) const MIN_DELAY: Duration = Duration::from_millis(1);

/// A policy that determines when an acquire retries after a failed attempt, until its maximum wait time ends.
///
/// Each acquire starts its own sequence of delays. Every delay is at least one millisecond. Random delays keep clients
/// that collided from colliding again: the Redlock page asks for "retry after a random delay".
///
/// The delays are not the only cause of a retry. The nodes notify the client when the lock is released or expires, and
/// the client retries soon after. While a quorum of nodes has promised such a notification, the client waits one second
/// longer before each retry except the first. A notification ends this wait early. More frequent retries would only
/// increase the load on the nodes.
///
/// If consecutive attempts fail because too few nodes reply, the delay doubles from the second failure on, up to eight
/// times the policy's delay. Otherwise, retries would keep overloaded nodes overloaded. The client still retries at once
/// when a quorum of nodes is connected again.
///
/// The extra second and the doubling do not apply to policies with a [limit](Self::limit) or with
/// [custom](Self::custom) delays.
///
/// # Default
///
/// [`RetryPolicy::jittered`] from 50 ms to 250 ms.
///
/// # Example
///
/// ```
/// use quorlock::RetryPolicy;
/// use std::time::Duration;
///
/// let ms = Duration::from_millis;
/// let patient = RetryPolicy::exponential(ms(5), ms(500));
/// let three_tries = RetryPolicy::fixed(ms(100)).limit(2);
/// # let _ = (patient, three_tries);
/// ```
#[derive(Clone)]
pub struct RetryPolicy {
    shape: Shape,
    limit: Option<u32>,
}

type Delays = Box<dyn Iterator<Item = Duration> + Send>;

#[derive(Clone)]
enum Shape {
    Never,
    Fixed(Duration),
    Linear { step: Duration, most: Duration },
    Exponential { base: Duration, most: Duration },
    Jittered(Range<Duration>),
    Custom(Arc<dyn Fn() -> Delays + Send + Sync>),
}

impl RetryPolicy {
    /// Creates a policy without retries: an acquire makes one attempt only.
    pub fn none() -> Self {
        Self::of(Shape::Never)
    }

    /// Creates a policy that waits for `delay` before each retry. Clients with the same fixed delay can collide
    /// repeatedly; prefer [`jittered`](Self::jittered).
    pub fn fixed(delay: Duration) -> Self {
        Self::of(Shape::Fixed(delay))
    }

    /// Creates a policy with increasing delays: `step`, then 2 x `step`, then 3 x `step`, up to `most`.
    pub fn linear(step: Duration, most: Duration) -> Self {
        Self::of(Shape::Linear { step, most })
    }

    /// Creates a policy with exponential backoff and full jitter. Each delay is a random time between zero and an upper
    /// bound. The bound is `base` for the first delay, then 2 x `base`, then 4 x `base`, up to `most`.
    pub fn exponential(base: Duration, most: Duration) -> Self {
        Self::of(Shape::Exponential { base, most })
    }

    /// Creates a policy with random delays that are uniformly distributed over `range`. If the range is empty, each
    /// delay is the start of the range.
    pub fn jittered(range: Range<Duration>) -> Self {
        Self::of(Shape::Jittered(range))
    }

    /// Creates a policy that takes its delays from an iterator. Each acquire calls `delays` to create its own iterator.
    /// The retries end when the iterator ends.
    pub fn custom<F, I>(delays: F) -> Self
    where
        F: Fn() -> I + Send + Sync + 'static,
        I: Iterator<Item = Duration> + Send + 'static,
    {
        Self::of(Shape::Custom(Arc::new(move || Box::new(delays()))))
    }

    /// Limits the policy to at most `retries` retries, that is, to at most `retries + 1` attempts.
    #[must_use]
    pub fn limit(self, retries: u32) -> Self {
        Self { limit: Some(retries), ..self }
    }

    /// Returns true if the policy allows a second attempt.
    pub(crate) fn retries(&self) -> bool {
        !matches!(self.shape, Shape::Never) && self.limit != Some(0)
    }

    fn of(shape: Shape) -> Self {
        Self { shape, limit: None }
    }

    pub(crate) fn schedule(&self) -> Schedule {
        let custom = match &self.shape {
            Shape::Custom(delays) => Some(delays()),
            _ => None,
        };
        Schedule { shape: self.shape.clone(), left: self.limit, custom, drawn: 0 }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::jittered(Duration::from_millis(50)..Duration::from_millis(250))
    }
}

impl fmt::Debug for RetryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shape {
            Shape::Never => write!(f, "none")?,
            Shape::Fixed(delay) => write!(f, "fixed {delay:?}")?,
            Shape::Linear { step, most } => write!(f, "linear {step:?} up to {most:?}")?,
            Shape::Exponential { base, most } => write!(f, "exponential {base:?} up to {most:?}")?,
            Shape::Jittered(range) => write!(f, "jittered {range:?}")?,
            Shape::Custom(_) => write!(f, "custom")?,
        }
        self.limit.map_or(Ok(()), |limit| write!(f, ", at most {limit} retries"))
    }
}

/// Generates the delays between the attempts of one acquire, until the policy allows no further attempt.
pub(crate) struct Schedule {
    shape: Shape,
    left: Option<u32>,
    custom: Option<Delays>,
    drawn: u32,
}

impl Schedule {
    /// Returns true if the policy sets no end to the delays: it has retries, no limit and no custom iterator.
    pub(super) fn is_endless(&self) -> bool {
        let has_retries = !matches!(self.shape, Shape::Never);
        has_retries && self.left.is_none() && self.custom.is_none()
    }

    /// Returns the next delay, or `None` if the policy allows no further attempt. `random` must be uniformly
    /// distributed over all `u64`.
    pub(crate) fn next_delay(&mut self, random: u64) -> Option<Duration> {
        match &mut self.left {
            Some(0) => return None,
            Some(left) => *left -= 1,
            None => {}
        }
        let delay = match &self.shape {
            Shape::Never => return None,
            Shape::Fixed(delay) => *delay,
            Shape::Linear { step, most } => {
                step.saturating_mul(self.drawn.saturating_add(1)).min(*most)
            }
            Shape::Exponential { base, most } => {
                let factor = 1_u32.checked_shl(self.drawn).unwrap_or(u32::MAX);
                random_between(Duration::ZERO, base.saturating_mul(factor).min(*most), random)
            }
            Shape::Jittered(range) => random_between(range.start, range.end, random),
            Shape::Custom(_) => self.custom.as_mut()?.next()?,
        };
        self.drawn = self.drawn.saturating_add(1);
        Some(delay.max(MIN_DELAY))
    }
}

/// Maps `random` to a duration between `from` and `to`. Returns `from` if the range is empty.
pub(super) fn random_between(from: Duration, to: Duration, random: u64) -> Duration {
    let span = to.saturating_sub(from).as_nanos();
    let nanos = (span.min(u128::from(u64::MAX)) * u128::from(random)) >> 64;
    from.saturating_add(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn delays(policy: &RetryPolicy, random: u64, most: usize) -> Vec<Duration> {
        let mut schedule = policy.schedule();
        std::iter::from_fn(|| schedule.next_delay(random)).take(most).collect()
    }

    #[test]
    fn policies_return_their_delays() {
        let (low, high) = (0, u64::MAX);
        assert!(delays(&RetryPolicy::none(), high, 9).is_empty());
        assert_eq!(delays(&RetryPolicy::fixed(ms(7)), high, 2), [ms(7), ms(7)]);
        assert_eq!(
            delays(&RetryPolicy::linear(ms(2), ms(5)), low, 4),
            [ms(2), ms(4), ms(5), ms(5)]
        );
        let exponential = RetryPolicy::exponential(ms(10), ms(30));
        assert_eq!(delays(&exponential, low, 3), [ms(1); 3]);
        let near = delays(&exponential, high, 3);
        for (delay, bound) in near.iter().zip([ms(10), ms(20), ms(30)]) {
            assert!(*delay <= bound && *delay + ms(1) > bound, "{delay:?} of {bound:?}");
        }
        assert_eq!(delays(&RetryPolicy::jittered(ms(50)..ms(250)), low, 1), [ms(50)]);
        assert_eq!(delays(&RetryPolicy::fixed(ms(7)).limit(2), high, 9).len(), 2);
        let custom = RetryPolicy::custom(|| [ms(1), ms(2), ms(3)].into_iter());
        assert_eq!(delays(&custom, high, 9), [ms(1), ms(2), ms(3)]);
        assert_eq!(delays(&custom, high, 9).len(), 3, "each acquire starts from the beginning");
    }

    #[test]
    fn retries_is_false_only_without_retries() {
        for (policy, retries, says) in [
            (RetryPolicy::none(), false, "none"),
            (RetryPolicy::fixed(ms(7)), true, "fixed 7ms"),
            (RetryPolicy::fixed(ms(7)).limit(0), false, "fixed 7ms, at most 0 retries"),
            (RetryPolicy::fixed(ms(7)).limit(1), true, "fixed 7ms, at most 1 retries"),
            (RetryPolicy::none().limit(3), false, "none, at most 3 retries"),
            (RetryPolicy::custom(std::iter::empty), true, "custom"),
        ] {
            assert_eq!(policy.retries(), retries, "{policy:?}");
            assert_eq!(format!("{policy:?}"), says);
        }
    }

    #[test]
    fn zero_and_reversed_delays_are_valid() {
        let zero = Duration::ZERO;
        for policy in [
            RetryPolicy::fixed(zero),
            RetryPolicy::linear(zero, zero),
            RetryPolicy::exponential(zero, ms(9)),
            RetryPolicy::jittered(zero..zero),
            RetryPolicy::custom(|| std::iter::repeat(Duration::ZERO)),
        ] {
            assert_eq!(delays(&policy, u64::MAX, 3), [ms(1); 3], "{policy:?}");
        }
        let (from, to) = (ms(9), ms(3));
        assert_eq!(delays(&RetryPolicy::jittered(from..to), u64::MAX, 1), [ms(9)]);
    }

    proptest! {
        #[test]
        fn jittered_delays_stay_in_range(from in 1..1_000_u64, span in 0..1_000_u64, random in any::<u64>()) {
            let policy = RetryPolicy::jittered(ms(from)..ms(from + span));
            for delay in delays(&policy, random, 3) {
                prop_assert!(delay >= ms(from) && delay <= ms(from + span));
            }
        }

        #[test]
        fn maximum_delays_do_not_overflow(random in any::<u64>(), n in 0..200_usize) {
            for policy in [
                RetryPolicy::exponential(Duration::MAX, Duration::MAX),
                RetryPolicy::linear(Duration::MAX, Duration::MAX),
                RetryPolicy::jittered(Duration::ZERO..Duration::MAX),
                RetryPolicy::jittered(Duration::MAX..Duration::MAX),
            ] {
                prop_assert_eq!(delays(&policy, random, n).len(), n);
            }
        }
    }
}
