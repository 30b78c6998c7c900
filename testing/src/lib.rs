#![doc = include_str!("../README.md")]

mod nodes;
mod server_model;
mod stream;

pub use nodes::{Nodes, Which};
#[doc(inline)]
pub use quorlock::test_util::{Alarm, Bell, Gate, Stream, World};
#[doc(inline)]
pub use quorlock::test_util::{
    Clock, PendingWork, advance, pending_work, shift_wall_clock, token_confirmations,
};
pub use server_model::Trouble;

/// For quorlock's simulation, and for the tests that compare the server model with real servers.
/// Not part of the public API.
#[doc(hidden)]
pub mod internals {
    pub use crate::nodes::OpenGate;
    pub use crate::server_model::{Config, ConnId, Fsync, Kind, Output, Server, Stored, Version};
    pub use crate::stream::{Carrier, Phase, StreamEnd, Wire};
    pub use quorlock::test_util::panic_in_coordinator;
}
