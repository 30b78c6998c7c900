#![doc = include_str!("../README.md")]

mod nodes;
#[doc(hidden)]
pub mod server_model;
#[doc(hidden)]
pub mod stream;

pub use nodes::{Nodes, Which};
#[doc(inline)]
pub use quorlock::test_util::token_confirmations;
#[doc(inline)]
pub use quorlock::test_util::{Alarm, Bell, Gate, Stream, World};
#[doc(inline)]
pub use quorlock::test_util::{Clock, PendingWork, advance, pending_work, shift_wall_clock};
pub use server_model::Trouble;
