//! The nodes of a client, and the runtime that serves them.

use super::environment::Environment;
use super::own_runtime::own_runtime;
use super::runtime::{Driver, NoRuntime, has_driver};
use super::target::Node;
use crate::observe::Observers;
use crate::random::Random;
use crate::time::Clock;
use std::io;
use std::sync::Arc;
use tokio::runtime::Handle;

pub(crate) struct Pool {
    nodes: Box<[Arc<Node>]>,
    pinned: Option<Handle>,
    environment: Environment,
}

impl Pool {
    pub(crate) fn new(
        nodes: Box<[Arc<Node>]>,
        pinned: Option<Handle>,
        environment: Environment,
    ) -> Self {
        Self { nodes, pinned, environment }
    }

    pub(crate) fn environment(&self) -> &Environment {
        &self.environment
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.environment.clock
    }

    pub(crate) fn random(&self) -> &Random {
        &self.environment.random
    }

    pub(crate) fn observers(&self) -> &Observers {
        &self.environment.observers
    }

    pub(crate) fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned.is_some()
    }

    /// Returns the runtime for the client's tasks. A pinned client uses only its pinned runtime. Any other client uses
    /// the current runtime if it has an I/O driver, and otherwise the library's own runtime. A blocking client never
    /// uses the current runtime. Also ensures that the client's alarms will fire.
    pub(crate) fn runtime(&self) -> Result<Handle, NoRuntime> {
        self.clock().start().map_err(NoRuntime::refused)?;
        // A simulated client has its own timers and streams, so its runtime needs no drivers.
        let is_simulated = self.environment.is_simulated();
        let can_serve = |runtime: &Handle| is_simulated || has_driver(runtime, Driver::Io);
        if let Some(pinned) = &self.pinned {
            let usable = Some(pinned.clone()).filter(can_serve);
            return usable.ok_or(NoRuntime::MissingDriver);
        }
        let current = Handle::try_current().ok().filter(|_| !self.is_blocking());
        match current.filter(can_serve) {
            Some(current) => Ok(current),
            None => self.own_runtime().map_err(NoRuntime::refused),
        }
    }

    fn is_blocking(&self) -> bool {
        self.environment.is_blocking
    }

    /// Returns true if the client may use threads that its environment does not control.
    pub(crate) fn has_own_threads(&self) -> bool {
        self.is_blocking() || !self.environment.is_simulated()
    }

    /// Returns the library's own runtime. Returns an error if the runtime cannot be started, or if the client is
    /// simulated and not a blocking client.
    pub(crate) fn own_runtime(&self) -> io::Result<Handle> {
        if self.has_own_threads() {
            own_runtime()
        } else {
            Err(io::Error::other("a simulated client has no other runtime"))
        }
    }
}
