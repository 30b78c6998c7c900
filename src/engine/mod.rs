//! The driver of the [coordinator](crate::coordinator): sockets, timers, and the completion of calls.
//!
//! Each client has one [`Engine`]. A task on a runtime reads and writes the connections of all nodes. Every other
//! thread of the client can take a turn in place of the task. A handle submits a request and awaits its completion.

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

pub(crate) use client::{Acquiring, Client, Failure, Won};
pub(crate) use shared::Engine;
pub(crate) use slot::CallId;

use crate::coordinator::LeaseId;
use std::any::Any;

/// Receiver of the events of a client's leases.
pub(crate) trait LeaseListener: Any + Send + Sync {
    /// Handles the end of `lease`, as reported by the coordinator.
    fn handle_end(&self, lease: LeaseId);

    /// Handles the release of `lease` by its holder.
    fn handle_release(&self, lease: LeaseId);

    /// Handles the close of the client, which releases all leases.
    fn handle_close(&self);

    /// Handles a panic of the coordinator: all leases are lost.
    fn handle_failure(&self);

    /// Wakes all tasks that wait for the end of a lease, so that one of the tasks starts the missing task of the
    /// client.
    fn wake_all(&self);
}
