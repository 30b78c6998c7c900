//! The nodes of a client, and the runtime that serves them.

use super::environment::Environment;
use super::own_runtime::{is_own, own_runtime};
use super::runtime::{NoRuntime, missing_driver};
use super::target::Node;
use crate::observe::Observers;
use crate::random::Random;
use crate::time::Clock;
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
    /// the current runtime if it has all drivers, and otherwise the library's own runtime. A blocking client never uses
    /// the current runtime.
    pub(crate) fn runtime(&self) -> Result<Handle, NoRuntime> {
        // A simulated client has its own timers and streams, so its runtime needs no drivers.
        let is_simulated = self.environment.is_simulated();
        let can_serve = |runtime: &Handle| is_simulated || missing_driver(runtime).is_none();
        let current = || Handle::try_current().ok().filter(|_| !self.is_blocking());
        let runtime = match &self.pinned {
            Some(pinned) => Some(pinned.clone()).filter(can_serve),
            None => current().filter(can_serve).or_else(|| self.own_runtime()),
        };
        runtime.ok_or(NoRuntime)
    }

    fn is_blocking(&self) -> bool {
        self.environment.is_blocking
    }

    pub(crate) fn is_own_runtime_current() -> bool {
        Handle::try_current().is_ok_and(|current| is_own(&current))
    }

    /// Returns the library's own runtime. Returns `None` if the runtime cannot be started. Also returns `None` for a
    /// simulated client, unless it is a blocking client.
    pub(crate) fn own_runtime(&self) -> Option<Handle> {
        let has_own = self.is_blocking() || !self.environment.is_simulated();
        if has_own { own_runtime() } else { None }
    }
}
