//! The driver of the [coordinator](crate::coordinator): sockets, timers, and the completion of calls.
//!
//! One [`Engine`] per client. A task per node on a runtime reads and writes, and every other thread of the client can
//! take a turn in its place. Handles submit a request and await its completion.

mod calls;
mod client;
mod io;
mod shared;
mod task;

pub(crate) use calls::Call;
pub(crate) use client::{Client, Failure, Won};
pub(crate) use shared::Engine;
