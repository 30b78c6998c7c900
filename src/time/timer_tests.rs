use super::*;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

struct Bell {
    rung: Mutex<Sender<Time>>,
    again: Mutex<Vec<Time>>,
}

impl Ring for Bell {
    fn ring(self: Arc<Self>, now: Time) -> Option<Time> {
        self.rung.lock().unwrap().send(now).unwrap();
        self.again.lock().unwrap().pop()
    }
}

fn bell(again: Vec<Time>) -> (Arc<Bell>, Receiver<Time>) {
    let (rung, heard) = channel();
    (Arc::new(Bell { rung: Mutex::new(rung), again: Mutex::new(again) }), heard)
}

fn weak(bell: &Arc<Bell>) -> Weak<dyn Ring> {
    let bell: Arc<dyn Ring> = bell.clone();
    Arc::downgrade(&bell)
}

const SOON: Duration = Duration::from_secs(20);

#[test]
fn rings_in_time_and_again_when_asked() {
    let first = machine::now().after(Duration::from_millis(30));
    let second = first.after(Duration::from_millis(30));
    let (bell, heard) = bell(vec![second]);
    let _alarm = Alarm::set(first, weak(&bell));
    assert!(heard.recv_timeout(SOON).unwrap() >= first);
    assert!(heard.recv_timeout(SOON).unwrap() >= second);
    assert!(heard.recv_timeout(Duration::from_millis(50)).is_err(), "and not a third time");
}

#[test]
fn a_later_alarm_does_not_hold_up_an_earlier_one() {
    let (late, _) = bell(vec![]);
    let (early, heard) = bell(vec![]);
    let _late = Alarm::set(machine::now().after(Duration::from_hours(1)), weak(&late));
    let _early = Alarm::set(machine::now().after(Duration::from_millis(20)), weak(&early));
    heard.recv_timeout(SOON).unwrap();
}

#[test]
fn a_cancelled_alarm_is_silent_and_a_hastened_one_early() {
    let (bell, heard) = bell(vec![]);
    let far = machine::now().after(Duration::from_hours(1));
    drop(Alarm::set(machine::now().after(Duration::from_millis(20)), weak(&bell)));
    assert!(heard.recv_timeout(Duration::from_millis(100)).is_err());
    let alarm = Alarm::set(far, weak(&bell));
    alarm.hasten(machine::now());
    assert!(heard.recv_timeout(SOON).unwrap() < far);
}

struct Broken(Mutex<Sender<Time>>);

impl Ring for Broken {
    fn ring(self: Arc<Self>, now: Time) -> Option<Time> {
        self.0.lock().unwrap().send(now).unwrap();
        panic!("a bell that panics, as this test wants it");
    }
}

#[test]
fn a_bell_that_panics_is_rung_again_and_keeps_no_other_from_ringing() {
    let (rung, panicked) = channel();
    let broken: Arc<dyn Ring> = Arc::new(Broken(Mutex::new(rung)));
    let (whole, heard) = bell(vec![]);
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
fn an_alarm_that_is_hastened_wakes_a_thread_that_sleeps() {
    // This timer belongs to this test alone, so no other alarm wakes its thread.
    let timer = leaked(process::id());
    let (bell, heard) = bell(vec![]);
    let far = machine::now().after(Duration::from_hours(1));
    let alarm = timer.set(far, weak(&bell));
    assert!(heard.recv_timeout(Duration::from_millis(100)).is_err(), "it sleeps");
    alarm.hasten(machine::now());
    assert!(heard.recv_timeout(SOON).unwrap() < far);
}

#[test]
fn the_next_alarm_starts_the_thread_anew_if_it_has_ended() {
    let timer = leaked(process::id());
    timer.is_running.store(true, Ordering::Release);
    drop(Running(timer));
    let (bell, heard) = bell(vec![]);
    let _alarm = timer.set(machine::now(), weak(&bell));
    heard.recv_timeout(SOON).unwrap();
    assert!(timer.is_running.load(Ordering::Acquire));
}

#[test]
fn alarm_of_another_process_is_left_alone() {
    let (spare, other) = (Timer::spare(9), Timer::spare(10));
    assert!(std::ptr::eq(other, Timer::spare(10)) && (spare.process, other.process) == (9, 10));
    let parent = leaked(7);

    // After a fork, the parent's alarms can stay locked in the child forever. The child must not lock them.
    let _locked = parent.alarms();
    let alarm = ThreadAlarm { timer: parent, key: 1 };
    alarm.hasten(machine::now());
    assert!(!alarm.is_ours());
    drop(alarm);
}

struct Hastened {
    alarm: OnceLock<Alarm>,
    rung: Mutex<Sender<Time>>,
}

impl Ring for Hastened {
    fn ring(self: Arc<Self>, now: Time) -> Option<Time> {
        self.alarm.wait().hasten(now);
        self.rung.lock().unwrap().send(now).unwrap();
        Some(now.after(Duration::from_hours(1)))
    }
}

#[test]
fn an_alarm_that_is_hastened_while_it_rings_rings_again() {
    let (rung, heard) = channel();
    let bell = Arc::new(Hastened { alarm: OnceLock::new(), rung: Mutex::new(rung) });
    let this: Arc<dyn Ring> = bell.clone();
    let alarm = Alarm::set(machine::now(), Arc::downgrade(&this));
    assert!(bell.alarm.set(alarm).is_ok());
    heard.recv_timeout(SOON).unwrap();
    heard.recv_timeout(SOON).unwrap();
}
