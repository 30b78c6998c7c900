use super::*;

fn ahead(node: &mut NodeClock, shown: i64, at: i64) -> Option<Duration> {
    node.handle_reading(reading(shown, at, 0, 0)).ahead
}

#[test]
fn step_ahead_is_reported_once_and_step_back_is_not() {
    let mut clocks = Clocks::new();
    clocks.read(10 * S);
    let node = &mut clocks.node;
    let by = ahead(node, EPOCH + 11 * S + 150 * MS, 11 * S).expect("it has stepped");
    assert!((150..=153).contains(&by.as_millis()), "{by:?}");
    assert_eq!(ahead(node, EPOCH + 12 * S + 150 * MS, 12 * S), None);
    assert_eq!(ahead(node, EPOCH + 13 * S - 150 * MS, 13 * S), None);
}

#[test]
fn small_step_is_detected_after_many_readings() {
    let mut clocks = Clocks::new();
    for at in 1..200 {
        clocks.read(at * 5 * S);
    }
    // Over these 1,000 s, wander alone could have reached 200 ms.
    assert!(ahead(&mut clocks.node, EPOCH + 1_000 * S + 50 * MS, 1_000 * S).is_some());
}

#[test]
fn narrower_of_two_readings_is_kept() {
    let mut clocks = Clocks::new();
    clocks.read(10 * S);
    clocks.node.handle_reading(reading(EPOCH + 100 * S, 20 * S, 4 * S, 0));
    assert_eq!(ahead(&mut clocks.node, EPOCH + 100 * S, 20 * S), None);
    assert!(ahead(&mut clocks.node, EPOCH + 102 * S, 21 * S).is_some(), "less than one delay");
}

#[test]
fn step_ahead_defers_grants_between_readings() {
    let mut clocks = Clocks::new();
    clocks.read(10 * S);
    assert_eq!(clocks.node.lag(time(10 * S + MS)), Duration::ZERO);
    clocks.ahead += S;
    clocks.read(11 * S);
    let lag = clocks.node.lag(time(11 * S + MS)).as_millis();
    assert!((980..=1_010).contains(&lag), "{lag}");
    assert_eq!(NodeClock::new(Drift::DEFAULT, KEY_LIFETIME).lag(time(S)), Duration::ZERO);
}

#[test]
fn step_is_forgotten_after_term_between_readings() {
    let mut clocks = Clocks::new();
    clocks.read(10 * S);
    clocks.ahead += 3_600 * S;
    clocks.read(11 * S);
    let over = time(11 * S + MS / 2).after(KEY_LIFETIME);
    assert!(clocks.node.lag(Time::from_nanos(over.as_nanos() - 1)) > Duration::from_mins(50));
    assert_eq!(clocks.node.lag(over), Duration::ZERO);
}

fn is_fast(gain_us: i64, seconds: i64) -> bool {
    let mut node = NodeClock::new(Drift::DEFAULT, KEY_LIFETIME);
    for second in 0..=seconds {
        let at = (10 + second) * S;
        node.handle_reading(reading(EPOCH + at + second * gain_us * 1_000, at, 0, 0));
    }
    node.fast(time((10 + seconds) * S)).is_some()
}

#[test]
fn clock_is_fast_after_three_fast_intervals() {
    // 1 % in microseconds, plus the resolution of 1 us.
    assert!(!is_fast(10_001, 9), "within the allowance");
    assert!(is_fast(10_002, 3));
    assert!(!is_fast(10_002, 2), "only two intervals");
}

#[test]
fn gain_within_a_second_is_a_step() {
    let mut clocks = Clocks::new();
    clocks.read(10 * S);
    for at in 1..9 {
        clocks.ahead += 50 * MS;
        clocks.read(10 * S + at * 100 * MS);
    }
    assert_eq!(clocks.node.fast(time(11 * S)), None);
}

/// Makes the clock step forward at each of the given times, and returns the `until` of each offset that is still
/// stored. All times are in milliseconds.
fn remembered(steps: impl IntoIterator<Item = i64>) -> Vec<i64> {
    let mut node = NodeClock::new(Drift::DEFAULT, KEY_LIFETIME);
    node.handle_reading(reading(EPOCH, 0, 0, 0));
    for (at, count) in steps.into_iter().zip(1..) {
        node.handle_reading(reading(EPOCH + (at + count * 20) * MS, at * MS, 0, 0));
    }
    let untils = node.past.iter().map(|past| past.until.as_nanos() / 1_000_000);
    untils.map(|until| i64::try_from(until).expect("soon")).collect()
}

#[test]
fn steps_up_to_maximum_are_kept_separately() {
    let steps: Vec<_> = (1..=64).map(|step| step * 100).collect();
    assert_eq!(remembered(steps.clone()), steps);
    assert_eq!(remembered(steps.into_iter().chain([6_500])).len(), MAX_PAST);
}

#[test]
fn closest_steps_for_their_age_are_merged() {
    // At equal distances, the oldest two offsets are merged.
    assert_eq!(remembered((1..=65).map(|step| step * 100))[0], 200);
    // In the middle, one step closely follows another, so these two are merged.
    let close = (1..=65).map(|step| if step == 31 { 3_005 } else { step * 100 });
    let kept = remembered(close);
    assert!(kept.contains(&100) && kept.contains(&3_005) && !kept.contains(&3_000), "{kept:?}");
    // Near the end, one step follows another slightly more closely than elsewhere. Recent steps matter more, so the
    // oldest two offsets are merged.
    let recent = (1..=65).map(|step| if step == 64 { 6_380 } else { step * 100 });
    let kept = remembered(recent);
    assert!(!kept.contains(&100) && kept.contains(&6_300) && kept.contains(&6_380), "{kept:?}");
}
