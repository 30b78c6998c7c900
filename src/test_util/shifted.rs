//! A clock that equals the machine's clock until a test advances it.

use crate::protocol::Time;
use crate::sync::lock;
use crate::time::{Alarm, Clock, OnAlarm, SourceAlarm, TimeSource, machine};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Maximum shift in nanoseconds (292 years). The limit ensures that the sum of a time and a
/// duration does not overflow.
const FARTHEST: u64 = u64::MAX / 2;

#[derive(Default)]
pub(crate) struct ShiftedClock(Arc<State>);

#[derive(Default)]
struct State {
    ahead_ns: AtomicU64,
    wall_ahead_us: AtomicI64,
    alarms: Mutex<Vec<Weak<ShiftedAlarm>>>,
}

/// Callback that is registered with the machine's clock. It calls `callback` once the shifted clock
/// reaches `due`.
struct ShiftedCallback {
    state: Arc<State>,
    /// Due time of the alarm on the shifted clock. The machine's alarm may fire earlier.
    due: Mutex<Time>,
    callback: Weak<dyn OnAlarm>,
}

struct ShiftedAlarm {
    callback: Arc<ShiftedCallback>,
    alarm: Alarm,
}

impl State {
    fn now(&self) -> Time {
        let ahead = self.ahead_ns.load(Ordering::SeqCst);
        Time::from_nanos(machine::now().as_nanos().saturating_add(ahead))
    }

    fn on_machine(&self, at: Time) -> Time {
        Time::from_nanos(at.as_nanos().saturating_sub(self.ahead_ns.load(Ordering::SeqCst)))
    }
}

impl ShiftedClock {
    /// Advances the clock. Alarms that are due fire soon after the call.
    pub(crate) fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let add = |ahead: u64| Some(ahead.saturating_add(by).min(FARTHEST));
        let _ = self.0.ahead_ns.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add);
        let alarms: Vec<_> = lock(&self.0.alarms).iter().filter_map(Weak::upgrade).collect();
        for alarm in alarms {
            alarm.alarm.reschedule_earlier(machine::now());
        }
    }
}

impl ShiftedClock {
    pub(crate) fn set_wall_clock_ahead(&self, ms: i64) {
        self.0.wall_ahead_us.store(ms.saturating_mul(1_000), Ordering::SeqCst);
    }
}

impl TimeSource for ShiftedClock {
    fn now(&self) -> Time {
        self.0.now()
    }

    fn wall_us(&self) -> u64 {
        machine::wall_us().saturating_add_signed(self.0.wall_ahead_us.load(Ordering::SeqCst))
    }

    fn set_alarm(&self, at: Time, callback: Weak<dyn OnAlarm>) -> Box<dyn SourceAlarm> {
        let callback =
            Arc::new(ShiftedCallback { state: self.0.clone(), due: Mutex::new(at), callback });
        let this: Arc<dyn OnAlarm> = callback.clone();
        let alarm = Clock::Machine.set_alarm(self.0.on_machine(at), Arc::downgrade(&this));
        let alarm = Arc::new(ShiftedAlarm { callback, alarm });
        let mut alarms = lock(&self.0.alarms);
        alarms.retain(|known| known.strong_count() > 0);
        alarms.push(Arc::downgrade(&alarm));
        Box::new(alarm)
    }
}

impl SourceAlarm for Arc<ShiftedAlarm> {
    fn reschedule_earlier(&self, at: Time) {
        {
            let mut due = lock(&self.callback.due);
            *due = at.min(*due);
        }
        self.alarm.reschedule_earlier(self.callback.state.on_machine(at));
    }
}

impl OnAlarm for ShiftedCallback {
    fn on_alarm(self: Arc<Self>, _now: Time) -> Option<Time> {
        let now = self.state.now();
        let due = *lock(&self.due);
        if now < due {
            return Some(self.state.on_machine(due));
        }
        // A concurrent `reschedule_earlier` may set an earlier time than `on_alarm` returns, so the minimum is
        // taken below.
        *lock(&self.due) = Time::END;
        let again = self.callback.upgrade()?.on_alarm(now)?;
        let mut due = lock(&self.due);
        *due = again.min(*due);
        Some(self.state.on_machine(*due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Clock;
    use std::sync::mpsc::{Sender, channel};

    struct Callback(Sender<Time>);

    impl OnAlarm for Callback {
        fn on_alarm(self: Arc<Self>, now: Time) -> Option<Time> {
            self.0.send(now).expect("somebody listens");
            Some(now.after(Duration::from_hours(1)))
        }
    }

    #[test]
    fn alarms_fire_when_the_clock_is_moved_and_not_before() {
        let (told, heard) = channel();
        let callback: Arc<dyn OnAlarm> = Arc::new(Callback(told));
        let shifted = Arc::new(ShiftedClock::default());
        let clock = Clock::Other(shifted.clone());
        let due = clock.now().after(Duration::from_hours(5));
        let alarm = clock.set_alarm(due, Arc::downgrade(&callback));
        shifted.advance(Duration::from_hours(4));
        assert!(heard.recv_timeout(Duration::from_millis(300)).is_err(), "an hour early");
        shifted.advance(Duration::from_hours(1));
        let patience = Duration::from_secs(30);
        assert!(heard.recv_timeout(patience).expect("it is due") >= due);
        shifted.advance(Duration::from_hours(1));
        heard.recv_timeout(patience).expect("it has asked to be called again");
        alarm.reschedule_earlier(clock.now());
        heard.recv_timeout(patience).expect("it was hastened");
        drop(alarm);
        shifted.advance(Duration::from_hours(1));
        assert!(heard.recv_timeout(Duration::from_millis(300)).is_err(), "it was cancelled");
    }
}
