//! Access of a client to the machine: streams, clock, randomness and tasks.

use crate::observe::Observers;
use crate::random::Random;
use crate::time::Clock;
use crate::transport::{Sockets, Transport};
use futures::future::BoxFuture;
use std::sync::Arc;

/// Everything that a client takes from the machine. The builder creates the environment and passes it to all parts of
/// the client. No other code opens a connection, reads a clock, draws a random number or spawns a task.
#[derive(Clone)]
pub(crate) struct Environment {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) observers: Observers,
    /// Whether the client is a blocking client. The calling thread may have entered a runtime that no thread drives
    /// while the call waits, so the current runtime cannot run the client's tasks.
    pub(crate) is_blocking: bool,
    /// Hook of a simulation that decides when the client's tasks are polled, in addition to their runtime.
    #[cfg(feature = "test-util")]
    pub(crate) gates: Option<Arc<dyn Gates>>,
}

/// Hook that wraps each task of a client and decides when the task is polled.
#[cfg(feature = "test-util")]
pub(crate) trait Gates: Send + Sync {
    fn wrap(&self, task: BoxFuture<'static, ()>) -> BoxFuture<'static, ()>;
}

impl Environment {
    /// Wraps `task` in the simulation's hook, if any. The caller must spawn the returned task instead of `task`.
    #[cfg_attr(not(feature = "test-util"), allow(clippy::unused_self))] // Only a simulation reads `self`.
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

    /// Returns true if the client is simulated. A simulated client uses neither the timers nor the sockets of its
    /// runtime.
    #[cfg_attr(not(feature = "test-util"), allow(clippy::unused_self))] // Only a simulation reads `self`.
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
