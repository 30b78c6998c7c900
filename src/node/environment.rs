//! What a client takes from the machine that it runs on.

use crate::observe::Observers;
use crate::random::Random;
use crate::time::Clock;
use crate::transport::{Sockets, Transport};
use futures::future::BoxFuture;
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
    /// True for a blocking client. The current runtime of its thread may be one that the thread only has entered, and
    /// that nobody drives while the thread waits.
    pub(crate) is_blocking: bool,
    /// Decides when the client's tasks are polled, in place of their runtime alone.
    #[cfg(feature = "test-util")]
    pub(crate) gates: Option<Arc<dyn Gates>>,
}

/// Wraps each task of a client, and decides when it is polled.
#[cfg(feature = "test-util")]
pub(crate) trait Gates: Send + Sync {
    fn wrap(&self, task: BoxFuture<'static, ()>) -> BoxFuture<'static, ()>;
}

impl Environment {
    /// `task`, to be spawned.
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

    /// True if nothing of the machine is used, its runtimes' timers and sockets neither.
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
