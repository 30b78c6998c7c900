//! The driver of the [coordinator](crate::coordinator): sockets, timers, and the completion of calls.
//!
//! One [`Engine`] per client. A task on a runtime reads and writes the connections of all nodes, and every other thread
//! of the client can take a turn in its place. Handles submit a request and await its completion.

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

/// The leases of a client.
pub(crate) trait LeaseListener: Any + Send + Sync {
    /// The coordinator has ended `lease`.
    fn handle_end(&self, lease: LeaseId);

    /// The holder releases `lease`.
    fn handle_release(&self, lease: LeaseId);

    /// The client was closed, and releases all leases.
    fn handle_close(&self);

    /// The coordinator has panicked: all leases are lost.
    fn handle_failure(&self);

    /// All tasks that wait for the end of a lease have to run: one of them starts the missing task.
    fn wake_all(&self);
}
