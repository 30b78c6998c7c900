//! A seeded simulation of quorlock's protocol.
//!
//! The protocol's objects are the library's own, included as they stand. Around them: virtual nodes
//! with clocks of their own, connections that delay, break and deliver late, clients that pause, and
//! a checker that knows the true time. The same seed gives the same run, event for event.

// The protocol imports nothing of the crate, so it can be driven as it stands, without being public.
#[allow(dead_code, unreachable_pub, unused_imports)]
#[path = "../../../src/protocol/mod.rs"]
mod protocol;

mod checker;
mod client;
mod clock;
mod clocks;
mod counts;
mod dice;
mod event;
mod fault;
mod fencing;
mod guard;
mod holding;
mod ledger;
mod link;
mod mind;
mod mistake;
mod mode;
mod mutation;
mod network;
mod node;
mod reconnect;
mod scenario;
mod steps;
mod sweep;
mod trace;
mod world;

pub use counts::{Count, Counts};
pub use mode::{Guarded, Hint, Mode, Outside, Stepped, Wiped};
pub use mutation::Mutation;
pub use sweep::{Sweep, sweep};
pub use world::{Outcome, run};
