//! A simulated world in place of the machine's clocks, sockets and scheduling.

use crate::client::Builder;
use crate::node::Gates;
use crate::protocol::Time;
use crate::time::{Clock, Ring, SourceAlarm, TimeSource};
use crate::transport::{Address, Transport};
use futures::future::BoxFuture;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub use crate::node::Gate;
pub use crate::transport::Stream;

/// A client's environment: its clocks, the streams to its nodes, and the scheduling of its tasks.
/// With its own world and a [seed](Builder::seed), a client's runs are repeatable, because it waits
/// only for events of the world.
///
/// A client still needs a tokio runtime, but uses neither its timers nor its I/O.
pub trait World: Send + Sync + 'static {
    /// Time since an arbitrary origin, by the client's clock. Never decreases.
    fn now(&self) -> Duration;

    /// Time since 1970 (Unix epoch), by the client's wall clock.
    fn wall_clock(&self) -> Duration;

    /// Sets an alarm: rings `bell` once [`now`](Self::now) is `at`. Then rings it at each time that
    /// [`Bell::ring`] returns, until the alarm is dropped.
    fn set_alarm(&self, at: Duration, bell: Bell) -> Box<dyn Alarm>;

    /// Opens a new stream to a node. `node` is its address without user and password.
    fn connect(&self, node: &str) -> BoxFuture<'static, io::Result<Box<dyn Stream>>>;

    /// Returns the gate for a new task of the client.
    fn gate(&self) -> Box<dyn Gate>;
}

/// The callback of an alarm.
#[derive(Clone)]
pub struct Bell(Weak<dyn Ring>);

impl Bell {
    /// Runs the callback at `now`. Returns the time of the next ring; `None` if there is none.
    pub fn ring(&self, now: Duration) -> Option<Duration> {
        let again = self.0.upgrade()?.ring(time(now))?;
        Some(Duration::from_nanos(again.as_nanos()))
    }
}

/// A pending alarm. Dropping it cancels it.
pub trait Alarm: Send + Sync {
    /// Moves the next ring to `at` if it is later.
    fn hasten(&self, at: Duration);
}

impl Builder {
    /// Runs the client in a simulated world.
    pub fn world(self, world: Arc<dyn World>) -> Self {
        let clock = Clock::Other(Arc::new(Inhabited(world.clone())));
        self.living_by(clock)
            .living_in(Arc::new(Inhabited(world.clone())), Arc::new(Inhabited(world)))
    }
}

/// Adapts a [`World`] to the client's internal traits.
struct Inhabited(Arc<dyn World>);

struct WorldAlarm(Box<dyn Alarm>);

fn time(since_origin: Duration) -> Time {
    Time::default().after(since_origin)
}

impl TimeSource for Inhabited {
    fn now(&self) -> Time {
        time(self.0.now())
    }

    fn wall_us(&self) -> u64 {
        u64::try_from(self.0.wall_clock().as_micros()).unwrap_or(u64::MAX)
    }

    fn set_alarm(&self, at: Time, bell: Weak<dyn Ring>) -> Box<dyn SourceAlarm> {
        let at = Duration::from_nanos(at.as_nanos());
        Box::new(WorldAlarm(self.0.set_alarm(at, Bell(bell))))
    }

    fn is_world(&self) -> bool {
        true
    }
}

impl SourceAlarm for WorldAlarm {
    fn hasten(&self, at: Time) {
        self.0.hasten(Duration::from_nanos(at.as_nanos()));
    }
}

impl Transport for Inhabited {
    fn connect<'a>(&'a self, to: &'a Address) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        self.0.connect(&to.to_string())
    }
}

impl Gates for Inhabited {
    fn gate(&self) -> Box<dyn Gate> {
        self.0.gate()
    }
}
