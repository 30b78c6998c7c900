//! The nodes of a client.

use super::environment::Environment;
use super::runtime::{NoRuntime, lack};
use super::target::Node;
use crate::observe::Observers;
use crate::random::Random;
use crate::time::Clock;
use std::sync::Arc;
use tokio::runtime::Handle;

/// The nodes of one client, and the runtime that it is pinned to.
pub(crate) struct Pool {
    shared: Box<[Arc<Node>]>,
    pinned: Option<Handle>,
    environment: Environment,
}

impl Pool {
    pub(crate) fn new(
        shared: Box<[Arc<Node>]>,
        pinned: Option<Handle>,
        environment: Environment,
    ) -> Self {
        Self { shared, pinned, environment }
    }

    pub(crate) fn environment(&self) -> &Environment {
        &self.environment
    }

    /// The client's clock.
    pub(crate) fn clock(&self) -> &Clock {
        &self.environment.clock
    }

    /// The client's source of randomness.
    pub(crate) fn random(&self) -> &Random {
        &self.environment.random
    }

    /// Receivers of the client's events.
    pub(crate) fn observers(&self) -> &Observers {
        &self.environment.observers
    }

    pub(crate) fn shared(&self) -> &[Arc<Node>] {
        &self.shared
    }

    /// True if only one runtime can serve the client.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned.is_some()
    }

    /// The current runtime, or the pinned one.
    pub(crate) fn runtime(&self) -> Result<Handle, NoRuntime> {
        let runtime = match &self.pinned {
            Some(pinned) => pinned.clone(),
            None => Handle::try_current().map_err(|_| NoRuntime::Absent)?,
        };
        // A simulated world has its own timers and streams.
        let missing = if self.environment.is_world() { None } else { lack(&runtime) };
        missing.map_or(Ok(runtime), |missing| Err(NoRuntime::Lacks(missing)))
    }
}
