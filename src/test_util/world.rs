//! A simulated world that replaces the machine's clocks, sockets and scheduling.

use super::gate::GatedTask;
use crate::client::Builder;
use crate::node::Gates;
use crate::protocol::Time;
use crate::time::{Clock, OnAlarm, SourceAlarm, TimeSource};
use crate::transport::{Address, Transport};
use futures::future::BoxFuture;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub use super::gate::Gate;
pub use crate::transport::Stream;

/// Environment of a client in a simulation: its clocks, the streams to its nodes, and the
/// scheduling of its tasks. A client with its own world and a [seed](Builder::seed) waits only for
/// events of that world, so its runs are repeatable.
///
/// The client still needs a tokio runtime, but uses neither its timers nor its I/O.
pub trait World: Send + Sync + 'static {
    /// Returns the time of the client's monotonic clock, since an arbitrary origin. The time must
    /// never decrease.
    fn now(&self) -> Duration;

    /// Returns the time of the client's wall clock, since the Unix epoch.
    fn wall_clock(&self) -> Duration;

    /// Sets an alarm that rings `callback` once [`now`](Self::now) reaches `at`. After each ring, the
    /// alarm rings again at the time that [`Bell::ring`] returned. The alarm ends when its handle is
    /// dropped or [`Bell::ring`] returns `None`.
    fn set_alarm(&self, at: Duration, callback: Bell) -> Box<dyn Alarm>;

    /// Opens a new stream to a node. `node` is the address of the node, without user and password.
    fn connect(&self, node: &str) -> BoxFuture<'static, io::Result<Box<dyn Stream>>>;

    /// Returns the gate for a new task of the client.
    fn gate(&self) -> Box<dyn Gate>;
}

/// Callback of an alarm. The world calls [`ring`](Self::ring) when the alarm is due.
#[derive(Clone)]
pub struct Bell(Weak<dyn OnAlarm>);

impl Bell {
    /// Runs the callback at `now`, the current simulated time. Returns the time of the next call, or
    /// `None` if no further call is needed.
    pub fn ring(&self, now: Duration) -> Option<Duration> {
        let again = self.0.upgrade()?.on_alarm(time(now))?;
        Some(Duration::from_nanos(again.as_nanos()))
    }
}

/// Handle to a pending alarm. Dropping the handle cancels the alarm.
pub trait Alarm: Send + Sync {
    /// Moves the next ring to `at`, unless the next ring is due earlier.
    fn hasten(&self, at: Duration);
}

impl Builder {
    /// Runs the client in a simulated world, which replaces the machine's clocks and sockets.
    pub fn world(mut self, world: Arc<dyn World>) -> Self {
        self.environment.clock = Clock::Other(Arc::new(WorldAdapter(world.clone())));
        self.environment.transport = Arc::new(WorldAdapter(world.clone()));
        self.environment.gates = Some(Arc::new(WorldAdapter(world)));
        self
    }
}

struct WorldAdapter(Arc<dyn World>);

struct WorldAlarm(Box<dyn Alarm>);

fn time(since_origin: Duration) -> Time {
    Time::default().after(since_origin)
}

impl TimeSource for WorldAdapter {
    fn now(&self) -> Time {
        time(self.0.now())
    }

    fn wall_us(&self) -> u64 {
        u64::try_from(self.0.wall_clock().as_micros()).unwrap_or(u64::MAX)
    }

    fn set_alarm(&self, at: Time, callback: Weak<dyn OnAlarm>) -> Box<dyn SourceAlarm> {
        let at = Duration::from_nanos(at.as_nanos());
        Box::new(WorldAlarm(self.0.set_alarm(at, Bell(callback))))
    }

    fn is_simulated(&self) -> bool {
        true
    }
}

impl SourceAlarm for WorldAlarm {
    fn reschedule_earlier(&self, at: Time) {
        self.0.hasten(Duration::from_nanos(at.as_nanos()));
    }
}

impl Transport for WorldAdapter {
    fn connect<'a>(&'a self, to: &'a Address) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        self.0.connect(&to.to_string())
    }
}

impl Gates for WorldAdapter {
    fn wrap(&self, task: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
        Box::pin(GatedTask::new(task, self.0.gate()))
    }
}
