//! A clock that equals the machine's clock until a test advances it.

use crate::protocol::Time;
use crate::sync::lock;
use crate::time::{Alarm, Clock, Ring, SourceAlarm, TimeSource, machine};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Maximum shift in nanoseconds (292 years), so that the sum of a time and a duration does not overflow.
const FARTHEST: u64 = u64::MAX / 2;

#[derive(Default)]
pub(crate) struct Shifted(Arc<State>);

#[derive(Default)]
struct State {
    ahead_ns: AtomicU64,
    alarms: Mutex<Vec<Weak<ShiftedAlarm>>>,
}

/// Callback of an alarm of the machine's clock. It calls `bell` once the shifted clock reaches `due`.
struct ShiftedBell {
    state: Arc<State>,
    /// Due time of the alarm on the shifted clock. The machine's alarm may ring earlier.
    due: Mutex<Time>,
    bell: Weak<dyn Ring>,
}

struct ShiftedAlarm {
    bell: Arc<ShiftedBell>,
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

impl Shifted {
    /// Advances the clock. Alarms that are due ring soon after the call.
    pub(crate) fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let add = |ahead: u64| Some(ahead.saturating_add(by).min(FARTHEST));
        let _ = self.0.ahead_ns.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add);
        let alarms: Vec<_> = lock(&self.0.alarms).iter().filter_map(Weak::upgrade).collect();
        for alarm in alarms {
            alarm.alarm.hasten(machine::now());
        }
    }
}

impl TimeSource for Shifted {
    fn now(&self) -> Time {
        self.0.now()
    }

    fn wall_us(&self) -> u64 {
        machine::wall_us()
    }

    fn set_alarm(&self, at: Time, bell: Weak<dyn Ring>) -> Box<dyn SourceAlarm> {
        let bell = Arc::new(ShiftedBell { state: self.0.clone(), due: Mutex::new(at), bell });
        let ring: Arc<dyn Ring> = bell.clone();
        let alarm = Clock::Machine.set_alarm(self.0.on_machine(at), Arc::downgrade(&ring));
        let alarm = Arc::new(ShiftedAlarm { bell, alarm });
        let mut alarms = lock(&self.0.alarms);
        alarms.retain(|known| known.strong_count() > 0);
        alarms.push(Arc::downgrade(&alarm));
        Box::new(alarm)
    }
}

impl SourceAlarm for Arc<ShiftedAlarm> {
    fn hasten(&self, at: Time) {
        {
            let mut due = lock(&self.bell.due);
            *due = at.min(*due);
        }
        self.alarm.hasten(self.bell.state.on_machine(at));
    }
}

impl Ring for ShiftedBell {
    fn ring(self: Arc<Self>, _now: Time) -> Option<Time> {
        let now = self.state.now();
        let due = *lock(&self.due);
        if now < due {
            return Some(self.state.on_machine(due));
        }
        // A concurrent `hasten` may set an earlier time than `ring` returns, so the minimum is taken below.
        *lock(&self.due) = Time::END;
        let again = self.bell.upgrade()?.ring(now)?;
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

    struct Bell(Sender<Time>);

    impl Ring for Bell {
        fn ring(self: Arc<Self>, now: Time) -> Option<Time> {
            self.0.send(now).expect("somebody listens");
            Some(now.after(Duration::from_hours(1)))
        }
    }

    #[test]
    fn alarms_ring_when_the_clock_is_moved_and_not_before() {
        let (told, heard) = channel();
        let bell: Arc<dyn Ring> = Arc::new(Bell(told));
        let shifted = Arc::new(Shifted::default());
        let clock = Clock::Other(shifted.clone());
        let due = clock.now().after(Duration::from_hours(5));
        let alarm = clock.set_alarm(due, Arc::downgrade(&bell));
        shifted.advance(Duration::from_hours(4));
        assert!(heard.recv_timeout(Duration::from_millis(300)).is_err(), "an hour early");
        shifted.advance(Duration::from_hours(1));
        let patience = Duration::from_secs(30);
        assert!(heard.recv_timeout(patience).expect("it is due") >= due);
        shifted.advance(Duration::from_hours(1));
        heard.recv_timeout(patience).expect("it has asked to be rung again");
        alarm.hasten(clock.now());
        heard.recv_timeout(patience).expect("it was hastened");
        drop(alarm);
        shifted.advance(Duration::from_hours(1));
        assert!(heard.recv_timeout(Duration::from_millis(300)).is_err(), "it was cancelled");
    }
}
