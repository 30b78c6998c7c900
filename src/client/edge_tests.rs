//! Property test of the builder with extreme values: `build` either succeeds with consistent settings or names an
//! invalid setting.

use super::*;
use crate::protocol::Ttl;
use proptest::prelude::*;
use proptest::sample::select;

const MS: Duration = Duration::from_millis(1);
const NS: Duration = Duration::from_nanos(1);
const CENTURY: Duration = Duration::from_millis(Ttl::MAX_MS);

#[derive(Clone, Debug)]
struct Given {
    ttl: Duration,
    max_ttl: Duration,
    token_ttl: Option<Duration>,
    wait: Duration,
    node_timeout: Duration,
    connect_timeout: Duration,
    factor: f64,
    constant: Duration,
    retry: RetryPolicy,
}

impl Given {
    fn builder(&self) -> Builder {
        let builder = Redlock::builder().nodes(["redis://127.0.0.1:1"]);
        let builder = builder.ttl(self.ttl).max_ttl(self.max_ttl).wait(self.wait);
        let builder = builder.node_timeout(self.node_timeout).retry(self.retry.clone());
        let builder = builder.connect_timeout(self.connect_timeout);
        let builder = builder.drift_factor(self.factor).drift_constant(self.constant);
        self.token_ttl.map_or(builder.clone(), |ttl| builder.token_ttl(ttl))
    }

    fn faults(&self) -> Vec<&'static str> {
        let cannot_be_told =
            |given: Duration| given < MS || given.as_millis() > CENTURY.as_millis();
        let is_share = self.factor >= 0.0 && self.factor < 1.0;
        let token_ttl = self.token_ttl.unwrap_or(self.max_ttl.max(Duration::from_hours(24)));
        let kept = Duration::from_millis(u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX));
        // Rounded up, so that the remaining validity is never too long.
        let factor = if is_share { (self.factor * 1e6).ceil() / 1e6 } else { 0.0 };
        let share = kept.min(CENTURY).mul_f64(factor);
        let left = kept.saturating_sub(share).saturating_sub(self.constant);
        [
            (cannot_be_told(self.ttl), "ttl"),
            (cannot_be_told(self.max_ttl), "max_ttl"),
            (cannot_be_told(token_ttl) || token_ttl < self.max_ttl, "token_ttl"),
            (self.ttl > self.max_ttl, "max_ttl"),
            (!is_share, "drift factor"),
            (left.is_zero(), "drift_factor() or drift_constant()"),
            (self.node_timeout.is_zero() || self.node_timeout >= left, "node_timeout"),
            (self.connect_timeout.is_zero(), "connect_timeout"),
        ]
        .into_iter()
        .filter_map(|(is_fault, name)| is_fault.then_some(name))
        .collect()
    }
}

fn duration() -> impl Strategy<Value = Duration> {
    let second = Duration::from_secs(1);
    let mut edges = vec![Duration::ZERO, Duration::MAX, CENTURY + MS];
    for around in [MS, 2 * MS, 50 * MS, second, 10 * second, 60 * second, 3_600 * second, CENTURY] {
        edges.extend([around.saturating_sub(NS), around, around + NS]);
    }
    // The durations with weight 4 are valid in most combinations.
    prop_oneof![
        1 => select(edges),
        1 => any::<Duration>(),
        4 => select(vec![second, 10 * second, 30 * second, 60 * second]),
    ]
}

fn factor() -> impl Strategy<Value = f64> {
    let edges =
        vec![0.0, -0.0, f64::MIN_POSITIVE, 1e-7, 0.5, 0.999_999, 0.999_999_9, 1.0 - f64::EPSILON];
    let beyond = vec![1.0, 1.5, -0.1, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX];
    prop_oneof![3 => Just(0.01), 2 => select(edges), 1 => select(beyond)]
}

fn retry() -> impl Strategy<Value = RetryPolicy> {
    (duration(), duration(), 0..6, prop::option::of(select(vec![0, 1, u32::MAX]))).prop_map(
        |(one, other, shape, limit)| {
            let policy = match shape {
                0 => RetryPolicy::none(),
                1 => RetryPolicy::fixed(one),
                2 => RetryPolicy::linear(one, other),
                3 => RetryPolicy::exponential(one, other),
                4 => RetryPolicy::jittered(one..other),
                _ => RetryPolicy::custom(move || [one, other].into_iter()),
            };
            limit.map_or(policy.clone(), |limit| policy.limit(limit))
        },
    )
}

prop_compose! {
    fn given()(
        (ttl, max_ttl, wait) in (duration(), duration(), duration()),
        token_ttl in prop::option::of(duration()),
        node_timeout in prop_oneof![2 => select(vec![NS, MS, 50 * MS]), 1 => duration()],
        connect_timeout in duration(),
        factor in factor(),
        constant in prop_oneof![2 => select(vec![Duration::ZERO, MS]), 1 => duration()],
        retry in retry(),
    ) -> Given {
        Given { ttl, max_ttl, token_ttl, wait, node_timeout, connect_timeout, factor, constant, retry }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn build_succeeds_or_names_the_invalid_setting(given in given(), random in any::<u64>()) {
        let faults = given.faults();
        match given.builder().build() {
            Ok(_) => prop_assert!(faults.is_empty(), "accepted, in spite of {:?}", faults),
            Err(error) => {
                let said = error.to_string();
                let is_named = faults.iter().any(|name| said.contains(name));
                prop_assert!(is_named, "{:?}, but it says: {}", faults, said);
            }
        }
        let mut schedule = given.retry.schedule();
        for _ in 0..70 {
            let Some(delay) = schedule.next_delay(random) else { break };
            prop_assert!(delay >= MS);
        }
    }
}
