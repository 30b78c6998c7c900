use super::*;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

struct Callback {
    fired: Mutex<Sender<Time>>,
    again: Mutex<Vec<Time>>,
}

impl OnAlarm for Callback {
    fn on_alarm(self: Arc<Self>, now: Time) -> Option<Time> {
        self.fired.lock().unwrap().send(now).unwrap();
        self.again.lock().unwrap().pop()
    }
}

fn callback(again: Vec<Time>) -> (Arc<Callback>, Receiver<Time>) {
    let (fired, heard) = channel();
    (Arc::new(Callback { fired: Mutex::new(fired), again: Mutex::new(again) }), heard)
}

fn weak(callback: &Arc<Callback>) -> Weak<dyn OnAlarm> {
    let callback: Arc<dyn OnAlarm> = callback.clone();
    Arc::downgrade(&callback)
}

const SOON: Duration = Duration::from_secs(20);

#[test]
fn rings_in_time_and_again_when_asked() {
    let first = machine::now().after(Duration::from_millis(30));
    let second = first.after(Duration::from_millis(30));
    let (callback, heard) = callback(vec![second]);
    let _alarm = Alarm::set(first, weak(&callback));
    assert!(heard.recv_timeout(SOON).unwrap() >= first);
    assert!(heard.recv_timeout(SOON).unwrap() >= second);
    assert!(heard.recv_timeout(Duration::from_millis(50)).is_err(), "and not a third time");
}

#[test]
fn later_alarm_does_not_delay_an_earlier_one() {
    let (late, _) = callback(vec![]);
    let (early, heard) = callback(vec![]);
    let _late = Alarm::set(machine::now().after(Duration::from_hours(1)), weak(&late));
    let _early = Alarm::set(machine::now().after(Duration::from_millis(20)), weak(&early));
    heard.recv_timeout(SOON).unwrap();
}

#[test]
fn cancelled_alarm_never_fires_and_rescheduled_one_fires_early() {
    let (callback, heard) = callback(vec![]);
    let far = machine::now().after(Duration::from_hours(1));
    drop(Alarm::set(machine::now().after(Duration::from_millis(20)), weak(&callback)));
    assert!(heard.recv_timeout(Duration::from_millis(100)).is_err());
    let alarm = Alarm::set(far, weak(&callback));
    alarm.reschedule_earlier(machine::now());
    assert!(heard.recv_timeout(SOON).unwrap() < far);
}

struct Broken(Mutex<Sender<Time>>);

impl OnAlarm for Broken {
    fn on_alarm(self: Arc<Self>, now: Time) -> Option<Time> {
        self.0.lock().unwrap().send(now).unwrap();
        panic!("a callback that panics, as this test wants it");
    }
}

#[test]
fn alarm_that_panics_fires_again_and_delays_no_other() {
    let (fired, panicked) = channel();
    let broken: Arc<dyn OnAlarm> = Arc::new(Broken(Mutex::new(fired)));
    let (whole, heard) = callback(vec![]);
    let now = machine::now();
    let broken_alarm = Alarm::set(now, Arc::downgrade(&broken));
    let _alarm = Alarm::set(now.after(Duration::from_millis(5)), weak(&whole));
    let first = panicked.recv_timeout(SOON).unwrap();
    heard.recv_timeout(SOON).unwrap();
    assert!(panicked.recv_timeout(SOON).unwrap() >= first.after(AFTER_PANIC));
    drop(broken_alarm);
}

fn leaked(process: u32) -> &'static Timer {
    Box::leak(Box::new(Timer::new(process)))
}

#[test]
fn alarm_moved_earlier_wakes_the_sleeping_thread() {
    // This timer belongs to this test alone, so no other alarm wakes its thread.
    let timer = leaked(process::id());
    let (callback, heard) = callback(vec![]);
    let far = machine::now().after(Duration::from_hours(1));
    let alarm = timer.set(far, weak(&callback));
    assert!(heard.recv_timeout(Duration::from_millis(100)).is_err(), "it sleeps");
    alarm.reschedule_earlier(machine::now());
    assert!(heard.recv_timeout(SOON).unwrap() < far);
}

#[test]
fn next_alarm_restarts_a_thread_that_has_ended() {
    let timer = leaked(process::id());
    *lock(&timer.is_running) = true;
    drop(Running(timer));
    let (callback, heard) = callback(vec![]);
    let _alarm = timer.set(machine::now(), weak(&callback));
    heard.recv_timeout(SOON).unwrap();
    assert!(*lock(&timer.is_running));
}

#[test]
fn alarm_of_another_process_is_left_alone() {
    let (spare, other) = (Timer::of_thread(9), Timer::of_thread(10));
    assert!(std::ptr::eq(other, Timer::of_thread(10)) && (spare.process, other.process) == (9, 10));
    let parent = leaked(7);

    // After a fork, the parent's alarms can stay locked in the child forever. The child must not lock them.
    let _locked = parent.alarms();
    let alarm = ThreadAlarm { timer: parent, key: 1 };
    alarm.reschedule_earlier(machine::now());
    assert!(!alarm.is_ours());
    drop(alarm);
}

struct MovedEarlier {
    alarm: OnceLock<Alarm>,
    fired: Mutex<Sender<Time>>,
}

impl OnAlarm for MovedEarlier {
    fn on_alarm(self: Arc<Self>, now: Time) -> Option<Time> {
        self.alarm.wait().reschedule_earlier(now);
        self.fired.lock().unwrap().send(now).unwrap();
        Some(now.after(Duration::from_hours(1)))
    }
}

#[test]
fn alarm_moved_earlier_while_it_fires_fires_again() {
    let (fired, heard) = channel();
    let callback = Arc::new(MovedEarlier { alarm: OnceLock::new(), fired: Mutex::new(fired) });
    let this: Arc<dyn OnAlarm> = callback.clone();
    let alarm = Alarm::set(machine::now(), Arc::downgrade(&this));
    assert!(callback.alarm.set(alarm).is_ok());
    heard.recv_timeout(SOON).unwrap();
    heard.recv_timeout(SOON).unwrap();
}
