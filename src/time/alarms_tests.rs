use super::*;
use std::sync::Arc;
use std::time::Duration;

struct Callback;

impl OnAlarm for Callback {
    fn on_alarm(self: Arc<Self>, _now: Time) -> Option<Time> {
        None
    }
}

fn at(seconds: u64) -> Time {
    Time::from_nanos(0).after(Duration::from_secs(seconds))
}

fn callback() -> Weak<dyn OnAlarm> {
    Weak::<Callback>::new()
}

fn due(alarms: &mut Alarms, now: Time) -> usize {
    let mut count = 0;
    while alarms.take_due(now).is_some() {
        alarms.finish_firing(None);
        count += 1;
    }
    count
}

#[test]
fn thread_rereads_alarms_moved_earlier_but_not_later() {
    let mut alarms = Alarms::default();
    let key = alarms.set(at(10), callback());
    assert!(
        !alarms.reschedule_earlier(key, at(11))
            && !alarms.reschedule_earlier(key, at(10))
            && !alarms.reschedule_earlier(2, at(1))
    );
    assert!(alarms.reschedule_earlier(key, at(5)), "it sleeps until 10");
    assert_eq!(alarms.next(), Some(at(5)));
    assert!(alarms.take_due(at(4)).is_none() && alarms.take_due(at(5)).is_some());
    assert!(!alarms.reschedule_earlier(key, at(1)), "it is firing");
}

#[test]
fn alarms_fire_once_in_order() {
    let mut alarms = Alarms::default();
    let keys = [4, 2, 3, 2].map(|seconds| alarms.set(at(seconds), callback()));
    assert!(alarms.reschedule_earlier(keys[0], at(1)), "its place at 4 is nobody's");
    assert_eq!([0, 1, 2, 3, 4].map(|seconds| due(&mut alarms, at(seconds))), [0, 1, 2, 1, 0]);
    assert!(alarms.next().is_none() && alarms.order.is_empty());
    assert!(!alarms.reschedule_earlier(keys[1], at(0)), "it is silent from then on");
}

#[test]
fn alarm_fires_again_at_the_time_it_returns_or_an_earlier_one() {
    let mut alarms = Alarms::default();
    let key = alarms.set(at(1), callback());
    for (answer, hastened, next) in [
        (Some(at(5)), None, Some(at(5))),
        (Some(at(9)), Some(at(6)), Some(at(6))),
        (Some(at(7)), Some(at(8)), Some(at(7))),
        (None, Some(at(8)), None),
    ] {
        assert!(alarms.take_due(at(10)).is_some(), "{answer:?}");
        if let Some(hastened) = hastened {
            alarms.reschedule_earlier(key, hastened.after(Duration::from_millis(1)));
            alarms.reschedule_earlier(key, hastened);
        }
        assert_eq!(alarms.next(), None, "it is firing");
        alarms.finish_firing(answer);
        assert_eq!(alarms.next(), next, "{answer:?}");
    }
}

#[test]
fn alarm_cancelled_while_it_fires_leaves_its_key_to_the_next() {
    let mut alarms = Alarms::default();
    let key = alarms.set(at(1), callback());
    assert!(alarms.take_due(at(1)).is_some());
    alarms.cancel(key);
    assert_eq!(alarms.set(at(7), callback()), key);
    alarms.finish_firing(Some(at(2)));
    assert_eq!(alarms.next(), Some(at(7)));
    // An alarm that no longer fires keeps its key until it is cancelled.
    assert_eq!(due(&mut alarms, at(7)), 1);
    assert_ne!(alarms.set(at(8), callback()), key);
    alarms.cancel(key);
    assert_eq!((alarms.next(), alarms.set(at(9), callback())), (Some(at(8)), key));
}

#[test]
fn cancelled_and_moved_alarms_leave_no_place() {
    let mut alarms = Alarms::default();
    let keys: Vec<usize> = (0..1_000).map(|_| alarms.set(at(3_600), callback())).collect();
    for key in &keys[10..] {
        alarms.cancel(*key);
    }
    assert_eq!(alarms.order.len(), 10);
    for seconds in (0..1_000).rev() {
        assert!(alarms.reschedule_earlier(keys[0], at(seconds)));
    }
    assert_eq!(alarms.order.len(), 10);
    assert_eq!((alarms.next(), due(&mut alarms, at(3_600))), (Some(at(0)), 10));
}
