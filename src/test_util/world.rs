//! A world of a test's own, in place of the machine.

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

/// What a client lives in: its clocks, the streams to its nodes, and when its tasks run. With one of its
/// own, and a [seed](Builder::seed), a client does the same whenever it is run: it waits for nothing that
/// the world does not do.
///
/// Runtimes stay tokio's: a client is used within one, also here. None of its timers is used, and no I/O.
pub trait World: Send + Sync + 'static {
    /// Time since some origin, by the client's clock. Never goes back.
    fn now(&self) -> Duration;

    /// The client's wall clock: time since 1970.
    fn wall_clock(&self) -> Duration;

    /// Rings `bell` once [`now`](Self::now) is `at`, and then whenever it asks to be rung again, until
    /// the alarm is dropped.
    fn set_alarm(&self, at: Duration, bell: Bell) -> Box<dyn Alarm>;

    /// Makes a new stream to a node; `node` is its address without user and password.
    fn connect(&self, node: &str) -> BoxFuture<'static, io::Result<Box<dyn Stream>>>;

    /// For a task that the client spawns.
    fn gate(&self) -> Box<dyn Gate>;
}

/// What an alarm rings.
#[derive(Clone)]
pub struct Bell(Weak<dyn Ring>);

impl Bell {
    /// Rings it at `now`. Returns when it is to be rung again.
    pub fn ring(&self, now: Duration) -> Option<Duration> {
        let again = self.0.upgrade()?.ring(time(now))?;
        Some(Duration::from_nanos(again.as_nanos()))
    }
}

/// An alarm that was set; it is cancelled when this is dropped.
pub trait Alarm: Send + Sync {
    /// Rings at `at` at the latest.
    fn hasten(&self, at: Duration);
}

impl Builder {
    /// Lets the client live in a world of its own.
    pub fn world(self, world: Arc<dyn World>) -> Self {
        let clock = Clock::Other(Arc::new(Inhabited(world.clone())));
        self.living_by(clock)
            .living_in(Arc::new(Inhabited(world.clone())), Arc::new(Inhabited(world)))
    }
}

/// A world, as the client's seams see it.
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
