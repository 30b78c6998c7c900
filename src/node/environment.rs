//! What a client takes from the machine that it runs on.

use super::gate::Task;
use super::timer::TimerClock;
use crate::observe::Observers;
use crate::random::Random;
use crate::time::Clock;
use crate::transport::{Sockets, Transport};
use std::sync::Arc;

/// The seams of a client: given to it when it is built, and handed down to all that it has. Nothing else
/// connects, reads a clock, draws a number or spawns a task.
#[derive(Clone)]
pub(crate) struct Environment {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    /// Who is told what happens.
    pub(crate) observers: Observers,
    /// Decides when the client's tasks are polled, in place of their runtime alone.
    #[cfg(feature = "test-util")]
    pub(crate) gates: Option<Arc<dyn Gates>>,
}

/// Makes a [`Gate`](super::Gate) for each task of a client.
#[cfg(feature = "test-util")]
pub(crate) trait Gates: Send + Sync {
    fn gate(&self) -> Box<dyn super::Gate>;
}

impl Environment {
    /// `task`, to be spawned.
    #[cfg_attr(not(feature = "test-util"), allow(clippy::unused_self))] // The machine needs no look.
    pub(crate) fn task<F: Future + Send + 'static>(&self, task: F) -> Task<F> {
        let task = Task::new(task);
        #[cfg(feature = "test-util")]
        let task = task.behind(self.gates.as_ref().map(|gates| gates.gate()));
        task
    }

    /// True if nothing of the machine is used, its runtimes' timers and sockets neither.
    #[cfg_attr(not(feature = "test-util"), allow(clippy::unused_self))] // The machine needs no look.
    pub(super) fn is_world(&self) -> bool {
        #[cfg(feature = "test-util")]
        let is_world = self.clock.is_world();
        #[cfg(not(feature = "test-util"))]
        let is_world = false;
        is_world
    }

    /// The clock that paces connections.
    #[cfg_attr(not(feature = "test-util"), allow(clippy::unused_self))] // The machine needs no look.
    pub(super) fn timer_clock(&self) -> TimerClock {
        #[cfg(feature = "test-util")]
        if self.is_world() {
            return TimerClock::Client(self.clock.clone());
        }
        TimerClock::Tokio
    }
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            transport: Arc::new(Sockets::default()),
            clock: Clock::default(),
            random: Random::default(),
            observers: Observers::default(),
            #[cfg(feature = "test-util")]
            gates: None,
        }
    }
}
