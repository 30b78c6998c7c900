//! The driver of the [coordinator](crate::coordinator): sockets, timers, and the completion of calls.
//!
//! Each client has one [`Engine`] and one task on a runtime. The task works in turns: in each turn, it reads and writes
//! the connections of all nodes. If the runtime runs the task too late, another thread of the client can take a turn.
//! Client handles submit requests to the engine and await their completion.

mod alarm;
mod calls;
mod client;
mod client_alarm;
mod events;
mod failure;
mod io;
mod lateness;
#[cfg(all(test, quorlock_loom))]
mod loom_tests;
#[cfg(all(test, quorlock_loom))]
mod loom_threads_tests;
#[cfg(all(test, feature = "test-util"))]
pub(crate) mod memory_tests;
mod panic;
mod queue;
mod requests;
#[cfg(test)]
mod requests_tests;
mod shared;
mod signal;
mod slot;
mod task;
mod turn;

pub(crate) use calls::Call;
pub(crate) use client::{AcquiredLease, Client, Failure, PendingAcquire};
pub(crate) use shared::Engine;
pub(crate) use slot::CallId;

use crate::coordinator::LeaseId;
use std::any::Any;

/// Receives events that concern the leases of a client.
pub(crate) trait LeaseListener: Any + Send + Sync {
    fn handle_end(&self, lease: LeaseId);

    fn handle_release(&self, lease: LeaseId);

    /// Ends all leases with `Loss::Closed`, because the client is closed or releases all its leases.
    fn handle_close(&self);

    /// Handles a panic of the coordinator, after which all leases are lost.
    fn handle_failure(&self);

    /// Wakes all callers that wait for the end of a lease. The first caller that is polled then starts a new task for
    /// the client.
    fn wake_all(&self);
}
