use super::*;
use crate::protocol::validity::Ttl;
use proptest::prelude::*;

const MS: i64 = 1_000_000;
const S: i64 = 1_000 * MS;
const KEY_LIFETIME: Duration = Duration::from_millis(62_200);
/// The time that the node's clock shows at the origin of the client's clock, in nanoseconds.
const EPOCH: i64 = 1_700_000_000 * S;

/// A node's clock that is `ahead` of the client's clock and does not drift.
struct Clocks {
    node: NodeClock,
    ahead: i64,
}

impl Clocks {
    fn new() -> Self {
        Self { node: NodeClock::new(Drift::DEFAULT, KEY_LIFETIME), ahead: 0 }
    }

    /// Reads the node's clock at `at`, with a network delay of 0.5 ms in each direction. Returns for how many
    /// milliseconds, rounded up, the grants of this reading do not count.
    fn read(&mut self, at: i64) -> u128 {
        let result = self.node.handle_reading(reading(EPOCH + at + self.ahead, at, MS / 2, MS / 2));
        result.counts_from.since(time(at + MS / 2)).as_nanos().div_ceil(1_000_000)
    }
}

fn time(at: i64) -> Time {
    Time::from_nanos(u64::try_from(at).expect("not negative"))
}

fn reading(shown: i64, at: i64, there: i64, back: i64) -> Reading {
    let server_time_us = u64::try_from(shown / 1_000).expect("after 1970");
    Reading { sent: time(at - there), server_time_us, received: time(at + back) }
}

#[test]
fn grants_of_good_clock_count_at_once() {
    let mut clocks = Clocks::new();
    for at in 1..100 {
        assert_eq!(clocks.read(at * 5 * S), 0);
        // 100 parts per million.
        clocks.ahead += S / 2_000;
    }
    assert_eq!(clocks.node.fast(time(500 * S)), None);
}

#[test]
fn step_delays_grants_and_the_delay_shrinks() {
    let mut clocks = Clocks::new();
    clocks.read(10 * S);
    clocks.ahead += 150 * MS;
    // The uncertainty is added: the network delay, and the wander that is possible in five seconds.
    assert!((148..=153).contains(&clocks.read(15 * S)));
    // A key that was granted before the step and expires now had a ttl of at least five seconds. Its holder does not
    // rely on the last 1 % of the ttl.
    assert!((100..=106).contains(&clocks.read(20 * S)));
    assert!((52..=60).contains(&clocks.read(25 * S)));
    assert_eq!(clocks.read(33 * S), 0);
}

#[test]
fn steps_ahead_add_up_and_steps_back_subtract() {
    let mut clocks = Clocks::new();
    clocks.read(10 * S);
    for (at, step) in [(11, 100), (12, 100), (13, -50), (14, 20)] {
        clocks.ahead += step * MS;
        clocks.read(at * S);
    }
    // The steps add up to 170 ms, minus 2 % or 3 % of one second.
    let late = clocks.read(14 * S + MS);
    assert!((138..=145).contains(&late), "{late}");
    clocks.ahead -= 10 * S;
    let late = clocks.read(16 * S);
    assert!(
        (100..=150).contains(&late),
        "the holders of dropped keys rely on them as before: {late}"
    );
    assert_eq!(clocks.read(16 * S + 200 * MS), 0, "no key is dropped early any more");
    clocks.ahead += 10 * S;
    let late = clocks.read(17 * S);
    assert!((9_890..10_010).contains(&late), "later grants can be dropped early: {late}");
}

#[test]
fn step_is_forgotten_after_all_earlier_keys_expired() {
    let mut clocks = Clocks::new();
    clocks.read(10 * S);
    clocks.ahead += 3_600 * S;
    assert!(clocks.read(11 * S) > 3_500_000);
    assert!(clocks.read(73 * S) > 3_500_000);
    assert_eq!(clocks.read(74 * S), 0);
}

#[test]
fn late_reply_is_not_a_step() {
    let mut clocks = Clocks::new();
    clocks.read(10 * S);
    for back in [0, 40, 400, 4_000] {
        let at = 20 * S + back * 3 * MS;
        let result = clocks.node.handle_reading(reading(EPOCH + at, at, MS, back * MS));
        assert_eq!((result.ahead, result.counts_from), (None, time(at + back * MS)));
    }
    let result = clocks.node.handle_reading(reading(EPOCH + 40 * S, 40 * S, 4 * S, MS));
    assert_eq!((result.ahead, result.counts_from), (None, time(40 * S + MS)), "a late request");
    assert_eq!(clocks.read(45 * S), 0);
}

#[test]
fn fast_clock_is_distinguished_from_steps() {
    let mut clocks = Clocks::new();
    clocks.read(10 * S);
    // Three steps, with pauses between them, are each far larger than 1 %.
    for at in [15, 25, 35] {
        clocks.ahead += 150 * MS;
        clocks.read(at * S);
        clocks.read((at + 5) * S);
        assert_eq!(clocks.node.fast(time((at + 5) * S)), None);
    }
    // A clock that gains 2 % is detected after three consecutive intervals of any length.
    for (at, is_fast) in [(41, false), (46, false), (47, true)] {
        clocks.ahead += (at - previous_reading(at)) * S / 50;
        clocks.read(at * S);
        assert_eq!(clocks.node.fast(time(at * S + MS)).is_some(), is_fast, "{at}");
    }
    let fast = clocks.node.fast(time(47 * S + MS)).expect("it runs fast");
    assert!(fast.ahead >= Duration::from_millis(100), "{fast:?}");
    assert_eq!(fast.until, time(47 * S + MS / 2).after(KEY_LIFETIME));
    assert_eq!(clocks.node.fast(fast.until), None);
    // A gain of 0.5 % is within the allowance.
    let mut slow = Clocks::new();
    for at in 1..50 {
        slow.ahead += S / 200;
        slow.read(at * S);
    }
    assert_eq!(slow.node.fast(time(50 * S)), None);
}

fn previous_reading(at: i64) -> i64 {
    match at {
        41 => 40,
        46 => 41,
        _ => 46,
    }
}

#[test]
fn older_reading_of_another_task_changes_nothing() {
    let mut clocks = Clocks::new();
    clocks.read(10 * S);
    clocks.ahead += S;
    clocks.read(11 * S);
    let late = clocks.node.handle_reading(reading(EPOCH + 10_900 * MS, 10_900 * MS, MS, MS));
    assert_eq!(late.ahead, None);
    assert_eq!(
        clocks.node.handle_reading(reading(EPOCH + 12_001 * MS, 11_001 * MS, 1, 1)).ahead,
        None
    );
    assert!(clocks.read(11 * S + 2 * MS) >= 980, "the step is not forgotten");
}

#[test]
fn many_steps_use_bounded_memory_without_overflow() {
    let mut clocks = Clocks::new();
    for at in 1..20_000 {
        clocks.ahead += 20 * MS;
        clocks.read(at * 10 * MS);
        assert!(clocks.node.past.len() <= MAX_PAST);
    }
    // The clock gains 0.1 s per second for three minutes. Only the steps of the last 60 s count.
    let mut clocks = Clocks::new();
    let mut late = 0;
    for at in 1..1_800 {
        clocks.ahead += 10 * MS;
        late = clocks.read(at * 100 * MS);
    }
    assert!((5_000..6_000).contains(&late), "{late}");
    let mut clocks = Clocks::new();
    for server_time_us in [0, u64::MAX, 1, u64::MAX / 1_000, 7] {
        for received in [1, u64::MAX] {
            let received = Time::from_nanos(received);
            let result = clocks.node.handle_reading(Reading {
                sent: Time::default(),
                server_time_us,
                received,
            });
            assert!(result.counts_from >= received);
        }
    }
}

#[path = "node_clock_limits_tests.rs"]
mod limits;

/// A random history of a node, a holder and a reader: the rates of their clocks, steps of the node's clock, the
/// reader's readings, and grants to the holder.
#[derive(Clone, Debug)]
struct World {
    /// Rates of the node, the holder and the reader, in parts per million.
    rates: [i64; 3],
    /// The time and size of each step.
    steps: Vec<(i64, i64)>,
    /// The pause before each reading, and the reading's network delays in both directions.
    readings: Vec<(i64, i64, i64)>,
    /// The time of each grant to the holder, and the ttl in milliseconds.
    grants: Vec<(i64, u64)>,
}

impl World {
    fn shown(&self, at: i64) -> i64 {
        let steps =
            self.steps.iter().filter(|(when, _)| *when <= at).map(|(_, by)| by).sum::<i64>();
        EPOCH + at + at / 1_000_000 * self.rates[0] + steps
    }

    fn on_reader(&self, at: i64) -> i64 {
        at + at / 1_000_000 * self.rates[2]
    }

    /// Returns true if a key granted at `granted` with `ttl` has expired by `at`.
    fn is_gone(&self, (granted, ttl): (i64, u64), at: i64) -> bool {
        let end = self.shown(granted) / MS + i64::try_from(ttl).expect("short");
        let after =
            self.steps.iter().map(|(when, _)| *when).filter(|when| (granted..at).contains(when));
        // The clock has a local maximum just before each step back.
        let moments = after.map(|when| when - 1).chain([at]);
        moments.filter(|moment| *moment >= granted).any(|moment| self.shown(moment) / MS >= end)
    }

    /// Returns the simulated time at which the holder stops relying on its key, if the grant had no network delay.
    fn relied_on_until(&self, (granted, ttl): (i64, u64)) -> i64 {
        let ttl = Ttl::from_duration(Duration::from_millis(ttl)).expect("a good ttl");
        let validity = ttl.as_duration().saturating_sub(Drift::DEFAULT.allowance(ttl));
        let validity = i64::try_from(validity.as_nanos()).expect("short");
        granted + validity - validity / 1_000_000 * self.rates[1]
    }
}

fn world() -> impl Strategy<Value = World> {
    let rates = prop::array::uniform3(-100..=100_i64);
    // Network delays hide steps of less than 7 ms.
    let by = prop_oneof![7..200_i64, -200..-7_i64, 200..10_000_i64, -10_000..-200_i64];
    let steps = prop::collection::vec((0..120_000_i64, by), 0..8);
    let reading = (1..5_000_i64, 20..2_000_i64, 20..2_000_i64);
    let readings = prop::collection::vec(reading, 1..80);
    let grants = prop::collection::vec((1..120_000_i64, 10..60_000_u64), 1..20);
    (rates, steps, readings, grants).prop_map(|(rates, steps, readings, grants)| World {
        rates,
        steps: separated(
            steps.into_iter().map(|(at, by)| (at * MS + 7, by * MS)).collect(),
            &readings,
        ),
        readings: readings
            .into_iter()
            .map(|(after, to, from)| (after * MS, to * 1_000, from * 1_000))
            .collect(),
        grants: grants.into_iter().map(|(at, ttl)| (at * MS, ttl)).collect(),
    })
}

/// Keeps only the first step between any two readings, because a client cannot detect a forward step that is set back
/// before the next reading.
fn separated(mut steps: Vec<(i64, i64)>, readings: &[(i64, i64, i64)]) -> Vec<(i64, i64)> {
    let mut at = 1_000 * MS;
    let reads: Vec<_> = readings
        .iter()
        .map(|(after, ..)| {
            at += after * MS;
            at
        })
        .collect();
    steps.sort_unstable();
    steps.dedup_by_key(|(at, _)| reads.partition_point(|read| read < at));
    steps
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn grants_wait_for_holders_of_dropped_keys(world in world()) {
        let mut node = NodeClock::new(Drift::DEFAULT, KEY_LIFETIME);
        let mut at = 1_000 * MS;
        let first = at;
        for (after, there, back) in &world.readings {
            at += after;
            let reading = Reading {
                sent: time(world.on_reader(at - there)),
                server_time_us: u64::try_from(world.shown(at) / 1_000).expect("after 1970"),
                received: time(world.on_reader(at + back)),
            };
            let result = node.handle_reading(reading);
            let counts_from = i64::try_from(result.counts_from.as_nanos()).expect("soon");
            let first_read = first + world.readings[0].0;
            for grant in world.grants.iter().filter(|(granted, _)| (first_read..at).contains(granted)) {
                if world.is_gone(*grant, at) {
                    let relied = world.on_reader(world.relied_on_until(*grant));
                    prop_assert!(counts_from >= relied, "{grant:?} at {at}: by {}", relied - counts_from);
                }
            }
        }
    }

    #[test]
    fn grants_without_steps_count_at_once(world in world()) {
        let world = World { steps: Vec::new(), ..world };
        let mut node = NodeClock::new(Drift::DEFAULT, KEY_LIFETIME);
        let mut at = 1_000 * MS;
        for (after, there, back) in &world.readings {
            at += after;
            let reading = reading(world.shown(at), at, *there, *back);
            let result = node.handle_reading(reading);
            prop_assert_eq!((result.counts_from, result.ahead), (reading.received, None));
        }
    }

    #[test]
    fn delay_is_bounded_by_the_sum_of_steps(world in world()) {
        let mut node = NodeClock::new(Drift::DEFAULT, KEY_LIFETIME);
        let mut at = 1_000 * MS;
        let most = world.steps.iter().map(|(_, by)| by.max(&0)).sum::<i64>();
        for (after, there, back) in &world.readings {
            at += after;
            let reading = reading(world.shown(at), at, *there, *back);
            let result = node.handle_reading(reading);
            let late = result.counts_from.since(reading.received).as_nanos();
            prop_assert!(late <= u128::try_from(most + 20 * MS).expect("not negative"));
        }
    }
}
