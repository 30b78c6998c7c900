//! The clock that in-process nodes share with their clients.

use super::advanced_time::{AdvancedTime, START};
use super::alarm::{Vigil, Watch};
use crate::protocol::Time;
use crate::sync::lock;
use crate::time::{Ring, SourceAlarm, TimeSource};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Wall clock at [`START`], in microseconds since 1970: 1 January 2026, 00:00 UTC.
const START_WALL_US: u64 = 1_767_225_600_000_000;

/// The clock of in-process nodes and their clients, with its alarms.
pub(super) struct RuntimeClock {
    time: Arc<AdvancedTime>,
    watches: Mutex<Vec<Weak<Watch>>>,
}

impl RuntimeClock {
    pub(super) fn new() -> Self {
        Self { time: Arc::new(AdvancedTime::new()), watches: Mutex::default() }
    }

    /// Advances the clock. Due alarms ring soon after.
    pub(super) fn advance(&self, by: Duration) {
        self.time.advance(by);
        let watches: Vec<_> = lock(&self.watches).iter().filter_map(Weak::upgrade).collect();
        for watch in watches {
            watch.look_again();
        }
    }
}

impl TimeSource for RuntimeClock {
    fn now(&self) -> Time {
        self.time.now()
    }

    fn wall_us(&self) -> u64 {
        let passed = self.now().since(START).as_micros();
        START_WALL_US.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    fn set_alarm(&self, at: Time, bell: Weak<dyn Ring>) -> Box<dyn SourceAlarm> {
        let watch = Watch::new(self.time.clone(), at, bell);
        let mut watches = lock(&self.watches);
        watches.retain(|known| known.strong_count() > 0);
        watches.push(Arc::downgrade(&watch));
        drop(watches);
        Box::new(Vigil::begin(watch))
    }

    fn is_world(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{Alarm, Clock};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use tokio::runtime::Runtime;

    const PATIENCE: Duration = Duration::from_secs(20);
    const SPAN: Duration = Duration::from_secs(70);

    struct Bell(Sender<Time>);

    impl Ring for Bell {
        fn ring(self: Arc<Self>, now: Time) -> Option<Time> {
            // A closed receiver ends the alarm.
            self.0.send(now).ok().map(|()| now.after(SPAN))
        }
    }

    /// An alarm that is due after [`SPAN`], its callback, and the times at which it rang.
    fn alarm(clock: &Arc<RuntimeClock>) -> (Alarm, Arc<dyn Ring>, Receiver<Time>) {
        let (told, heard) = channel();
        let bell: Arc<dyn Ring> = Arc::new(Bell(told));
        let due = clock.now().after(SPAN);
        let alarm = Clock::Other(clock.clone()).set_alarm(due, Arc::downgrade(&bell));
        (alarm, bell, heard)
    }

    #[test]
    fn alarms_ring_in_a_runtime_after_its_end_and_without_one() {
        let clock = Arc::new(RuntimeClock::new());
        let runtime = Runtime::new().expect("a runtime");
        let (inside, _bell, heard_inside) = {
            let _entered = runtime.enter();
            alarm(&clock)
        };
        let (outside, _bell, heard_outside) = alarm(&clock);
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
