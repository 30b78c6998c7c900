//! The clock that in-process nodes and their clients share.

use super::advanced_time::{AdvancedTime, START};
use super::alarm::{AlarmHandle, AlarmState, Callback};
use super::lock::lock;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Wall-clock time at [`START`], since the Unix epoch: 1 January 2026, 00:00 UTC.
const START_WALL: Duration = Duration::from_secs(1_767_225_600);

pub(super) struct RuntimeClock {
    time: Arc<AdvancedTime>,
    alarms: Mutex<Vec<Weak<AlarmState>>>,
}

impl RuntimeClock {
    pub(super) fn new() -> Self {
        Self { time: Arc::new(AdvancedTime::new()), alarms: Mutex::default() }
    }

    /// Advances the clock. Alarms that are due fire soon after the call.
    pub(super) fn advance(&self, by: Duration) {
        self.time.advance(by);
        let alarms: Vec<_> = lock(&self.alarms).iter().filter_map(Weak::upgrade).collect();
        for state in alarms {
            state.clock_changed();
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.time.now()
    }

    /// Returns the shared wall-clock time, since the Unix epoch.
    pub(super) fn wall(&self) -> Duration {
        START_WALL + self.now().saturating_sub(START)
    }

    pub(super) fn wall_us(&self) -> u64 {
        u64::try_from(self.wall().as_micros()).unwrap_or(u64::MAX)
    }

    /// Sets an alarm that calls `callback` at time `at`. If `callback` returns another time, the
    /// alarm calls it again at that time. Dropping the handle cancels the alarm.
    pub(super) fn set_alarm(&self, at: Duration, callback: Callback) -> AlarmHandle {
        let state = AlarmState::new(self.time.clone(), at, callback);
        let mut alarms = lock(&self.alarms);
        alarms.retain(|known| known.strong_count() > 0);
        alarms.push(Arc::downgrade(&state));
        drop(alarms);
        AlarmHandle::begin(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorlock::test_util::Alarm;
    use std::sync::mpsc::{Receiver, channel};
    use tokio::runtime::Runtime;

    const PATIENCE: Duration = Duration::from_secs(20);
    const SPAN: Duration = Duration::from_secs(70);

    fn alarm(clock: &RuntimeClock) -> (AlarmHandle, Receiver<Duration>) {
        let (fired, calls) = channel();
        let callback = move |now| fired.send(now).ok().map(|()| now + SPAN);
        (clock.set_alarm(clock.now() + SPAN, Box::new(callback)), calls)
    }

    #[test]
    fn alarms_fire_in_after_and_without_a_runtime() {
        let clock = RuntimeClock::new();
        let runtime = Runtime::new().expect("a runtime");
        let (inside, heard_inside) = {
            let _entered = runtime.enter();
            alarm(&clock)
        };
        let (outside, heard_outside) = alarm(&clock);
        for heard in [&heard_inside, &heard_outside] {
            assert!(heard.try_recv().is_err(), "not yet");
        }
        clock.advance(SPAN);
        for heard in [&heard_inside, &heard_outside] {
            heard.recv_timeout(PATIENCE).expect("it is due");
        }
        drop(runtime);
        clock.advance(SPAN);
        for heard in [&heard_inside, &heard_outside] {
            heard.recv_timeout(PATIENCE).expect("it is due again");
        }
        inside.hasten(clock.now());
        heard_inside.recv_timeout(PATIENCE).expect("it was hastened");
        drop((inside, outside));
        clock.advance(SPAN);
        for heard in [&heard_inside, &heard_outside] {
            assert!(heard.recv_timeout(Duration::from_millis(200)).is_err(), "it was cancelled");
        }
    }
}
