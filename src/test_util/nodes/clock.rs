//! The clock that in-process nodes share with their clients.

use super::alarm::{Vigil, Watch};
use crate::protocol::Time;
use crate::sync::lock;
use crate::time::{Ring, SourceAlarm, TimeSource};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// Initial time (30 days): late enough that differences of times do not reach zero.
const START: Time = Time::from_nanos(30 * 24 * 3_600 * 1_000_000_000);

/// Wall clock at [`START`], in microseconds since 1970: 1 January 2026, 00:00 UTC.
const START_WALL_US: u64 = 1_767_225_600_000_000;

/// Maximum total advance (292 years), so that adding a timeout to a time does not overflow.
const FARTHEST: u64 = u64::MAX / 2;

/// Tokio's clock plus all advances. Never decreases, even if it is read in several runtimes of
/// which one is paused.
pub(super) struct RuntimeClock(Arc<State>);

/// Shared by the clock and its alarms.
pub(super) struct State {
    origin: Instant,
    ahead_ns: AtomicU64,
    latest_ns: AtomicU64,
    watches: Mutex<Vec<Weak<Watch>>>,
}

impl RuntimeClock {
    pub(super) fn new() -> Self {
        Self(Arc::new(State {
            origin: Instant::now(),
            ahead_ns: AtomicU64::new(0),
            latest_ns: AtomicU64::new(0),
            watches: Mutex::default(),
        }))
    }

    /// Advances the clock. Due alarms ring soon after.
    pub(super) fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let add = |ahead: u64| Some(ahead.saturating_add(by).min(FARTHEST));
        let _ = self.0.ahead_ns.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add);
        let watches: Vec<_> = lock(&self.0.watches).iter().filter_map(Weak::upgrade).collect();
        for watch in watches {
            watch.look_again();
        }
    }
}

impl State {
    pub(super) fn now(&self) -> Time {
        let passed = Instant::now().saturating_duration_since(self.origin);
        let ahead = Duration::from_nanos(self.ahead_ns.load(Ordering::SeqCst));
        let now = START.after(passed).after(ahead).as_nanos();
        Time::from_nanos(self.latest_ns.fetch_max(now, Ordering::SeqCst).max(now))
    }
}

impl TimeSource for RuntimeClock {
    fn now(&self) -> Time {
        self.0.now()
    }

    fn wall_us(&self) -> u64 {
        let passed = self.now().since(START).as_micros();
        START_WALL_US.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    fn set_alarm(&self, at: Time, bell: Weak<dyn Ring>) -> Box<dyn SourceAlarm> {
        let watch = Watch::new(self.0.clone(), at, bell);
        let mut watches = lock(&self.0.watches);
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
