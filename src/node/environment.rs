//! The machine as a client sees it: streams, clock, randomness and tasks.

use crate::observe::Observers;
use crate::random::Random;
use crate::time::Clock;
use crate::transport::{Sockets, Transport};
use futures::future::BoxFuture;
use std::sync::Arc;

/// Everything that a client takes from the machine. It is set when the client is built, and passed to all its parts: no
/// other code connects, reads a clock, draws a number or spawns a task.
#[derive(Clone)]
pub(crate) struct Environment {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    /// Receivers of the events.
    pub(crate) observers: Observers,
    /// True for a blocking client. The current runtime of its thread may be one that the thread only has entered, and
    /// that no thread drives while this one waits.
    pub(crate) is_blocking: bool,
    /// Decides when the client's tasks are polled, in addition to their runtime.
    #[cfg(feature = "test-util")]
    pub(crate) gates: Option<Arc<dyn Gates>>,
}

/// Wraps each task of a client, and decides when it is polled.
#[cfg(feature = "test-util")]
pub(crate) trait Gates: Send + Sync {
    fn wrap(&self, task: BoxFuture<'static, ()>) -> BoxFuture<'static, ()>;
}

impl Environment {
    /// Wraps `task` before it is spawned.
    #[cfg_attr(not(feature = "test-util"), allow(clippy::unused_self))] // The machine needs no look.
    pub(crate) fn task(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> BoxFuture<'static, ()> {
        let task = Box::pin(task);
        #[cfg(feature = "test-util")]
        if let Some(gates) = &self.gates {
            return gates.wrap(task);
        }
        task
    }

    /// True if the client is simulated: it uses neither the timers nor the sockets of its runtime.
    #[cfg_attr(not(feature = "test-util"), allow(clippy::unused_self))] // The machine needs no look.
    pub(crate) fn is_world(&self) -> bool {
        #[cfg(feature = "test-util")]
        let is_world = self.clock.is_world();
        #[cfg(not(feature = "test-util"))]
        let is_world = false;
        is_world
    }
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            transport: Arc::new(Sockets::default()),
            clock: Clock::default(),
            random: Random::default(),
            observers: Observers::default(),
            is_blocking: false,
            #[cfg(feature = "test-util")]
            gates: None,
        }
    }
}
