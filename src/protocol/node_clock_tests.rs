use super::*;
use crate::protocol::validity::Ttl;
use proptest::prelude::*;

const MS: i64 = 1_000_000;
const S: i64 = 1_000 * MS;
const TERM: Duration = Duration::from_millis(62_200);
/// What the node's clock shows when ours begins.
const EPOCH: i64 = 1_700_000_000 * S;

/// A node's clock and ours, with nothing between them but the way.
struct Two {
    node: NodeClock,
    /// How far the node's is ahead of where it began.
    ahead: i64,
}

impl Two {
    fn new() -> Self {
        Self { node: NodeClock::new(Drift::DEFAULT, TERM), ahead: 0 }
    }

    /// Reads it at `at`, half a millisecond there and half back; for how long what it grants then does
    /// not count, in milliseconds rounded up.
    fn read(&mut self, at: i64) -> u128 {
        let told = self.node.handle_reading(reading(EPOCH + at + self.ahead, at, MS / 2, MS / 2));
        told.counts_from.since(time(at + MS / 2)).as_nanos().div_ceil(1_000_000)
    }
}

fn time(at: i64) -> Time {
    Time::from_nanos(u64::try_from(at).expect("not before the beginning"))
}

fn reading(shown: i64, at: i64, there: i64, back: i64) -> Reading {
    let shown_us = u64::try_from(shown / 1_000).expect("after 1970");
    Reading { sent: time(at - there), shown_us, received: time(at + back) }
}

#[test]
fn what_a_clock_grants_that_goes_well_counts_at_once() {
    let mut two = Two::new();
    for at in 1..100 {
        assert_eq!(two.read(at * 5 * S), 0);
        // 100 parts per million.
        two.ahead += S / 2_000;
    }
    assert_eq!(two.node.fast(time(500 * S)), None);
}

#[test]
fn after_a_step_grants_count_by_its_length_later_and_by_less_and_less() {
    let mut two = Two::new();
    two.read(10 * S);
    two.ahead += 150 * MS;
    // What is not known of the clock is added: the way, and what it may have done in five seconds.
    assert!((148..=153).contains(&two.read(15 * S)));
    // A key that was granted before the step and was to stand until now was granted for five seconds at
    // the least: its holder has given up a hundredth of that.
    assert!((100..=106).contains(&two.read(20 * S)));
    assert!((52..=60).contains(&two.read(25 * S)));
    assert_eq!(two.read(33 * S), 0);
}

#[test]
fn steps_add_up_and_those_that_go_back_are_taken_off() {
    let mut two = Two::new();
    two.read(10 * S);
    for (at, step) in [(11, 100), (12, 100), (13, -50), (14, 20)] {
        two.ahead += step * MS;
        two.read(at * S);
    }
    // 170 in all, less two or three hundredths of a second.
    let late = two.read(14 * S + MS);
    assert!((138..=145).contains(&late), "{late}");
    two.ahead -= 10 * S;
    let late = two.read(16 * S);
    assert!(
        (100..=150).contains(&late),
        "what was dropped is relied on for as long as before: {late}"
    );
    assert_eq!(two.read(16 * S + 200 * MS), 0, "nothing is dropped early any more");
    two.ahead += 10 * S;
    let late = two.read(17 * S);
    assert!((9_890..10_010).contains(&late), "what was granted meanwhile is: {late}");
}

#[test]
fn a_step_is_forgotten_when_everything_has_ended_that_was_granted_before() {
    let mut two = Two::new();
    two.read(10 * S);
    two.ahead += 3_600 * S;
    assert!(two.read(11 * S) > 3_500_000);
    assert!(two.read(73 * S) > 3_500_000);
    assert_eq!(two.read(74 * S), 0);
}

#[test]
fn a_late_reply_is_no_step() {
    let mut two = Two::new();
    two.read(10 * S);
    for back in [0, 40, 400, 4_000] {
        let at = 20 * S + back * 3 * MS;
        let told = two.node.handle_reading(reading(EPOCH + at, at, MS, back * MS));
        assert_eq!((told.ahead, told.counts_from), (None, time(at + back * MS)));
    }
    let told = two.node.handle_reading(reading(EPOCH + 40 * S, 40 * S, 4 * S, MS));
    assert_eq!((told.ahead, told.counts_from), (None, time(40 * S + MS)), "a late request");
    assert_eq!(two.read(45 * S), 0);
}

#[test]
fn a_clock_that_runs_fast_is_told_from_one_that_has_stepped() {
    let mut two = Two::new();
    two.read(10 * S);
    // Three steps that are far more than a hundredth, with calm between them.
    for at in [15, 25, 35] {
        two.ahead += 150 * MS;
        two.read(at * S);
        two.read((at + 5) * S);
        assert_eq!(two.node.fast(time((at + 5) * S)), None);
    }
    // Two per cent fast: told after three intervals in a row, whatever their lengths.
    for (at, is_fast) in [(41, false), (46, false), (47, true)] {
        two.ahead += (at - two_at(at)) * S / 50;
        two.read(at * S);
        assert_eq!(two.node.fast(time(at * S + MS)).is_some(), is_fast, "{at}");
    }
    let fast = two.node.fast(time(47 * S + MS)).expect("it runs fast");
    assert!(fast.ahead >= Duration::from_millis(100), "{fast:?}");
    assert_eq!(fast.until, time(47 * S + MS / 2).after(TERM));
    assert_eq!(two.node.fast(fast.until), None);
    // Half a per cent is no more than is allowed for.
    let mut slow = Two::new();
    for at in 1..50 {
        slow.ahead += S / 200;
        slow.read(at * S);
    }
    assert_eq!(slow.node.fast(time(50 * S)), None);
}

/// When it was read before `at`, in the test above.
fn two_at(at: i64) -> i64 {
    match at {
        41 => 40,
        46 => 41,
        _ => 46,
    }
}

#[test]
fn an_older_reading_of_another_task_brings_nothing_new() {
    let mut two = Two::new();
    two.read(10 * S);
    two.ahead += S;
    two.read(11 * S);
    let late = two.node.handle_reading(reading(EPOCH + 10_900 * MS, 10_900 * MS, MS, MS));
    assert_eq!(late.ahead, None);
    assert_eq!(
        two.node.handle_reading(reading(EPOCH + 12_001 * MS, 11_001 * MS, 1, 1)).ahead,
        None
    );
    assert!(two.read(11 * S + 2 * MS) >= 980, "the step stays known");
}

#[test]
fn however_often_it_steps_little_is_kept_and_nothing_overflows() {
    let mut two = Two::new();
    for at in 1..20_000 {
        two.ahead += 20 * MS;
        two.read(at * 10 * MS);
        assert!(two.node.past.len() <= MAX_PAST);
    }
    // A tenth of a second every second, for three minutes: 60 s of that are remembered.
    let mut two = Two::new();
    let mut late = 0;
    for at in 1..1_800 {
        two.ahead += 10 * MS;
        late = two.read(at * 100 * MS);
    }
    assert!((5_000..6_000).contains(&late), "{late}");
    let mut two = Two::new();
    for shown_us in [0, u64::MAX, 1, u64::MAX / 1_000, 7] {
        for received in [1, u64::MAX] {
            let received = Time::from_nanos(received);
            let told =
                two.node.handle_reading(Reading { sent: Time::default(), shown_us, received });
            assert!(told.counts_from >= received);
        }
    }
}

#[path = "node_clock_limits_tests.rs"]
mod limits;

/// What is drawn of a run in the world: clocks that wander by up to 100 parts per million, steps of the
/// node's, and a client that reads it now and then.
#[derive(Clone, Debug)]
struct World {
    /// In parts per million: the node's, the holder's and the reader's.
    rates: [i64; 3],
    /// When, and by how much.
    steps: Vec<(i64, i64)>,
    /// After how long, and how long the ways there and back take.
    readings: Vec<(i64, i64, i64)>,
    /// When a key was granted to the holder, and for how many milliseconds.
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

    /// True if the key that was granted at `granted` for `ttl` is gone at `at`, or was before.
    fn is_gone(&self, (granted, ttl): (i64, u64), at: i64) -> bool {
        let end = self.shown(granted) / MS + i64::try_from(ttl).expect("short");
        let after =
            self.steps.iter().map(|(when, _)| *when).filter(|when| (granted..at).contains(when));
        // Just before each step back it was as late as it got.
        let moments = after.map(|when| when - 1).chain([at]);
        moments.filter(|moment| *moment >= granted).any(|moment| self.shown(moment) / MS >= end)
    }

    /// Until when its holder relies on it, who was granted it over no way at all, in true time.
    fn relied_on_until(&self, (granted, ttl): (i64, u64)) -> i64 {
        let ttl = Ttl::from_duration(Duration::from_millis(ttl)).expect("a good ttl");
        let validity = ttl.as_duration().saturating_sub(Drift::DEFAULT.allowance(ttl));
        let validity = i64::try_from(validity.as_nanos()).expect("short");
        granted + validity - validity / 1_000_000 * self.rates[1]
    }
}

fn world() -> impl Strategy<Value = World> {
    let rates = prop::array::uniform3(-100..=100_i64);
    // From seven milliseconds on: what is less is hidden by the ways.
    let by = prop_oneof![7..200_i64, -200..-7_i64, 200..10_000_i64, -10_000..-200_i64];
    let steps = prop::collection::vec((0..120_000_i64, by), 0..8);
    let reading = (1..5_000_i64, 20..2_000_i64, 20..2_000_i64);
    let readings = prop::collection::vec(reading, 1..80);
    let grants = prop::collection::vec((1..120_000_i64, 10..60_000_u64), 1..20);
    (rates, steps, readings, grants).prop_map(|(rates, steps, readings, grants)| World {
        rates,
        steps: apart(steps.into_iter().map(|(at, by)| (at * MS + 7, by * MS)).collect(), &readings),
        readings: readings
            .into_iter()
            .map(|(after, to, from)| (after * MS, to * 1_000, from * 1_000))
            .collect(),
        grants: grants.into_iter().map(|(at, ttl)| (at * MS, ttl)).collect(),
    })
}

/// The first step between any two readings: how far a clock was put ahead that was put back before it was
/// read, nobody can know.
fn apart(mut steps: Vec<(i64, i64)>, readings: &[(i64, i64, i64)]) -> Vec<(i64, i64)> {
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
    fn no_grant_counts_while_a_holder_relies_on_a_key_that_was_dropped(world in world()) {
        let mut node = NodeClock::new(Drift::DEFAULT, TERM);
        let mut at = 1_000 * MS;
        let first = at;
        for (after, there, back) in &world.readings {
            at += after;
            let reading = Reading {
                sent: time(world.on_reader(at - there)),
                shown_us: u64::try_from(world.shown(at) / 1_000).expect("after 1970"),
                received: time(world.on_reader(at + back)),
            };
            let told = node.handle_reading(reading);
            let counts_from = i64::try_from(told.counts_from.as_nanos()).expect("soon");
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
    fn without_steps_every_grant_counts_at_once(world in world()) {
        let world = World { steps: Vec::new(), ..world };
        let mut node = NodeClock::new(Drift::DEFAULT, TERM);
        let mut at = 1_000 * MS;
        for (after, there, back) in &world.readings {
            at += after;
            let reading = reading(world.shown(at), at, *there, *back);
            let told = node.handle_reading(reading);
            prop_assert_eq!((told.counts_from, told.ahead), (reading.received, None));
        }
    }

    #[test]
    fn after_steps_service_is_back_within_what_they_come_to(world in world()) {
        let mut node = NodeClock::new(Drift::DEFAULT, TERM);
        let mut at = 1_000 * MS;
        let most = world.steps.iter().map(|(_, by)| by.max(&0)).sum::<i64>();
        for (after, there, back) in &world.readings {
            at += after;
            let reading = reading(world.shown(at), at, *there, *back);
            let told = node.handle_reading(reading);
            let late = told.counts_from.since(reading.received).as_nanos();
            prop_assert!(late <= u128::try_from(most + 20 * MS).expect("not negative"));
        }
    }
}
