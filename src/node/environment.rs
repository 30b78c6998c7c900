//! The client's access to the machine: streams, clock, randomness and tasks.

use crate::observe::Observers;
use crate::random::Random;
use crate::sync::ProcessBound;
use crate::time::Clock;
use crate::transport::{Sockets, Transport};
use futures::future::BoxFuture;
use std::sync::Arc;

/// The client's access to the machine, which a simulation replaces. The builder creates the environment and passes it
/// to all parts of the client. No other code opens a connection, reads a clock, draws a random number or spawns a task.
#[derive(Clone)]
pub(crate) struct Environment {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) observers: Observers,
    /// True for a blocking client, whose tasks must not run on the current runtime. If only the calling thread drives
    /// that runtime, the tasks would not run while the call waits.
    pub(crate) is_blocking: bool,
    #[cfg(feature = "test-util")]
    pub(crate) gates: Option<Arc<dyn Gates>>,
}

/// A hook of a simulation that wraps each task of a client and decides when the task is polled.
#[cfg(feature = "test-util")]
pub(crate) trait Gates: Send + Sync {
    fn wrap(&self, task: BoxFuture<'static, ()>) -> BoxFuture<'static, ()>;
}

impl Environment {
    /// Returns the task to spawn in place of `task`. In a simulation, the gates decide when `task` is polled. A forked
    /// process that drops its copy of the runtime does not drop `task`, which locks mutexes and closes streams of the
    /// parent.
    #[cfg_attr(not(feature = "test-util"), allow(clippy::unused_self))] // Only a simulation reads `self`.
    pub(crate) fn task(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> ProcessBound<BoxFuture<'static, ()>> {
        let task: BoxFuture<'static, ()> = Box::pin(task);
        #[cfg(feature = "test-util")]
        if let Some(gates) = &self.gates {
            return ProcessBound::new(gates.wrap(task));
        }
        ProcessBound::new(task)
    }

    /// Returns true if the client runs in a simulation. It then uses neither the timers nor the sockets of its runtime.
    #[cfg_attr(not(feature = "test-util"), allow(clippy::unused_self))] // Only a simulation reads `self`.
    pub(crate) fn is_simulated(&self) -> bool {
        #[cfg(feature = "test-util")]
        let is_simulated = self.clock.is_simulated();
        #[cfg(not(feature = "test-util"))]
        let is_simulated = false;
        is_simulated
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
