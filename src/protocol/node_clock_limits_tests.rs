use super::*;

/// What a reading without any way brings to light.
fn ahead(node: &mut NodeClock, shown: i64, at: i64) -> Option<Duration> {
    node.handle_reading(reading(shown, at, 0, 0)).ahead
}

#[test]
fn a_step_is_told_once_with_its_length_and_one_back_is_not() {
    let mut two = Two::new();
    two.read(10 * S);
    let node = &mut two.node;
    let by = ahead(node, EPOCH + 11 * S + 150 * MS, 11 * S).expect("it has stepped");
    assert!((150..=153).contains(&by.as_millis()), "{by:?}");
    assert_eq!(ahead(node, EPOCH + 12 * S + 150 * MS, 12 * S), None);
    assert_eq!(ahead(node, EPOCH + 13 * S - 150 * MS, 13 * S), None);
}

#[test]
fn a_clock_that_is_read_often_hides_no_small_step_however_long_it_goes_well() {
    let mut two = Two::new();
    for at in 1..200 {
        two.read(at * 5 * S);
    }
    // In all that time it could have wandered off by 200 ms.
    assert!(ahead(&mut two.node, EPOCH + 1_000 * S + 50 * MS, 1_000 * S).is_some());
}

#[test]
fn of_two_readings_that_come_together_the_narrower_one_is_known() {
    let mut two = Two::new();
    two.read(10 * S);
    two.node.handle_reading(reading(EPOCH + 100 * S, 20 * S, 4 * S, 0));
    assert_eq!(ahead(&mut two.node, EPOCH + 100 * S, 20 * S), None);
    assert!(ahead(&mut two.node, EPOCH + 102 * S, 21 * S).is_some(), "less than the way of one");
}

#[test]
fn between_readings_a_grant_counts_as_much_later_as_with_one() {
    let mut two = Two::new();
    two.read(10 * S);
    assert_eq!(two.node.lag(time(10 * S + MS)), Duration::ZERO);
    two.ahead += S;
    two.read(11 * S);
    let lag = two.node.lag(time(11 * S + MS)).as_millis();
    assert!((980..=1_010).contains(&lag), "{lag}");
    assert_eq!(NodeClock::new(Drift::DEFAULT, TERM).lag(time(S)), Duration::ZERO);
}

#[test]
fn a_step_is_forgotten_a_term_after_it_was_seen_also_between_readings() {
    let mut two = Two::new();
    two.read(10 * S);
    two.ahead += 3_600 * S;
    two.read(11 * S);
    let over = time(11 * S + MS / 2).after(TERM);
    assert!(two.node.lag(Time::from_nanos(over.as_nanos() - 1)) > Duration::from_mins(50));
    assert_eq!(two.node.lag(over), Duration::ZERO);
}

/// A clock that gains so many microseconds in each second, and is read once in each; whether it runs fast
/// after so many of them.
fn is_fast(gain_us: i64, seconds: i64) -> bool {
    let mut node = NodeClock::new(Drift::DEFAULT, TERM);
    for second in 0..=seconds {
        let at = (10 + second) * S;
        node.handle_reading(reading(EPOCH + at + second * gain_us * 1_000, at, 0, 0));
    }
    node.fast(time((10 + seconds) * S)).is_some()
}

#[test]
fn a_clock_runs_fast_that_gains_more_than_is_allowed_for_in_three_whole_intervals() {
    // A hundredth, and the microsecond that it does not show.
    assert!(!is_fast(10_001, 9), "no more than is allowed for");
    assert!(is_fast(10_002, 3));
    assert!(!is_fast(10_002, 2), "twice is not often");
}

#[test]
fn what_a_clock_gains_within_a_second_is_a_step_and_no_pace() {
    let mut two = Two::new();
    two.read(10 * S);
    for at in 1..9 {
        two.ahead += 50 * MS;
        two.read(10 * S + at * 100 * MS);
    }
    assert_eq!(two.node.fast(time(11 * S)), None);
}

/// What is remembered of steps that were seen at these times, in milliseconds: until when each was so.
fn remembered(steps: impl IntoIterator<Item = i64>) -> Vec<i64> {
    let mut node = NodeClock::new(Drift::DEFAULT, TERM);
    node.handle_reading(reading(EPOCH, 0, 0, 0));
    for (at, count) in steps.into_iter().zip(1..) {
        node.handle_reading(reading(EPOCH + (at + count * 20) * MS, at * MS, 0, 0));
    }
    let untils = node.past.iter().map(|past| past.until.as_nanos() / 1_000_000);
    untils.map(|until| i64::try_from(until).expect("soon")).collect()
}

#[test]
fn as_many_steps_as_there_is_room_for_are_remembered_each_by_itself() {
    let steps: Vec<_> = (1..=64).map(|step| step * 100).collect();
    assert_eq!(remembered(steps.clone()), steps);
    assert_eq!(remembered(steps.into_iter().chain([6_500])).len(), MAX_PAST);
}

#[test]
fn those_steps_are_remembered_together_that_lie_closest_for_their_age() {
    // Evenly apart: the oldest.
    assert_eq!(remembered((1..=65).map(|step| step * 100))[0], 200);
    // One that comes soon after another, in the middle.
    let close = (1..=65).map(|step| if step == 31 { 3_005 } else { step * 100 });
    let kept = remembered(close);
    assert!(kept.contains(&100) && kept.contains(&3_005) && !kept.contains(&3_000), "{kept:?}");
    // One that comes a little sooner than the others, just now: there it matters more.
    let recent = (1..=65).map(|step| if step == 64 { 6_380 } else { step * 100 });
    let kept = remembered(recent);
    assert!(!kept.contains(&100) && kept.contains(&6_300) && kept.contains(&6_380), "{kept:?}");
}
