use super::*;
use std::sync::Arc;
use std::time::Duration;

struct Bell;

impl Ring for Bell {
    fn ring(self: Arc<Self>, _now: Time) -> Option<Time> {
        None
    }
}

fn at(seconds: u64) -> Time {
    Time::from_nanos(0).after(Duration::from_secs(seconds))
}

fn bell() -> Weak<dyn Ring> {
    Weak::<Bell>::new()
}

fn due(alarms: &mut Alarms, now: Time) -> usize {
    let mut count = 0;
    while alarms.take_due(now).is_some() {
        alarms.put_back(None);
        count += 1;
    }
    count
}

#[test]
fn the_thread_looks_anew_at_what_is_hastened_and_not_at_what_is_put_off() {
    let mut alarms = Alarms::default();
    let key = alarms.set(at(10), bell());
    assert!(!alarms.hasten(key, at(11)) && !alarms.hasten(key, at(10)) && !alarms.hasten(2, at(1)));
    assert!(alarms.hasten(key, at(5)), "it sleeps until 10");
    assert_eq!(alarms.next(), Some(at(5)));
    assert!(alarms.take_due(at(4)).is_none() && alarms.take_due(at(5)).is_some());
    assert!(!alarms.hasten(key, at(1)), "it is ringing");
}

#[test]
fn each_rings_once_and_in_its_turn() {
    let mut alarms = Alarms::default();
    let keys = [4, 2, 3, 2].map(|seconds| alarms.set(at(seconds), bell()));
    assert!(alarms.hasten(keys[0], at(1)), "its place at 4 is nobody's");
    assert_eq!([0, 1, 2, 3, 4].map(|seconds| due(&mut alarms, at(seconds))), [0, 1, 2, 1, 0]);
    assert!(alarms.next().is_none() && alarms.order.is_empty());
    assert!(!alarms.hasten(keys[1], at(0)), "it is silent from then on");
}

#[test]
fn it_rings_again_when_it_says_or_was_hastened_to() {
    let mut alarms = Alarms::default();
    let key = alarms.set(at(1), bell());
    for (answer, hastened, next) in [
        (Some(at(5)), None, Some(at(5))),
        (Some(at(9)), Some(at(6)), Some(at(6))),
        (Some(at(7)), Some(at(8)), Some(at(7))),
        (None, Some(at(8)), None),
    ] {
        assert!(alarms.take_due(at(10)).is_some(), "{answer:?}");
        if let Some(hastened) = hastened {
            alarms.hasten(key, hastened.after(Duration::from_millis(1)));
            alarms.hasten(key, hastened);
        }
        assert_eq!(alarms.next(), None, "it is ringing");
        alarms.put_back(answer);
        assert_eq!(alarms.next(), next, "{answer:?}");
    }
}

#[test]
fn one_that_is_cancelled_while_it_rings_leaves_its_key_to_the_next() {
    let mut alarms = Alarms::default();
    let key = alarms.set(at(1), bell());
    assert!(alarms.take_due(at(1)).is_some());
    alarms.cancel(key);
    assert_eq!(alarms.set(at(7), bell()), key);
    alarms.put_back(Some(at(2)));
    assert_eq!(alarms.next(), Some(at(7)));
    // An alarm that no longer rings keeps its key until it is cancelled.
    assert_eq!(due(&mut alarms, at(7)), 1);
    assert_ne!(alarms.set(at(8), bell()), key);
    alarms.cancel(key);
    assert_eq!((alarms.next(), alarms.set(at(9), bell())), (Some(at(8)), key));
}

#[test]
fn cancelled_and_moved_alarms_leave_no_place() {
    let mut alarms = Alarms::default();
    let keys: Vec<usize> = (0..1_000).map(|_| alarms.set(at(3_600), bell())).collect();
    for key in &keys[10..] {
        alarms.cancel(*key);
    }
    assert_eq!(alarms.order.len(), 10);
    for seconds in (0..1_000).rev() {
        assert!(alarms.hasten(keys[0], at(seconds)));
    }
    assert_eq!(alarms.order.len(), 10);
    assert_eq!((alarms.next(), due(&mut alarms, at(3_600))), (Some(at(0)), 10));
}
