//! Everything that knows Redis: one task per node that owns its connection.
//!
//! A [`Node`] is a handle with a mailbox. Orders go in without waiting, from any thread, also
//! outside of a runtime; the node's task writes all that waits as one pipeline, in order (I8), and
//! casts each order's vote when its reply comes. A node that hangs or dies is kept apart here: its
//! task answers for it, and knows what it still has to be told.

mod actor;
mod claim;
mod clocks;
mod companion;
mod connection;
mod deed;
mod estate;
mod facts;
mod failure;
mod fence;
mod guard;
mod handshake;
mod judge;
mod keys;
mod links;
mod mailbox;
mod order;
mod owed;
mod pool;
mod probe;
mod push;
mod pushes;
mod reconnect;
mod reply;
mod runtime;
mod script;
mod set_up;
mod settle;
mod shared;
mod shield;
mod silence;
mod standing;
mod suspects;
mod value;
mod vote;

pub(crate) use claim::Claim;
pub(crate) use clocks::Clocks;
pub(crate) use companion::is_reserved;
pub(crate) use deed::{Cooling, Wants};
pub(crate) use facts::Facts;
pub use facts::{Fsync, Persistence, Role};
pub use failure::NodeFailure;
pub(crate) use failure::short;
pub(crate) use fence::{Counters, Fence};
pub(crate) use guard::Guard;
pub use guard::RestartGuard;
pub(crate) use keys::Keys;
pub(crate) use links::Links;
pub(crate) use order::Order;
pub(crate) use pool::{Nodes, Pool};
pub(crate) use probe::{Probe, WallClock};
pub(crate) use push::PushSink;
pub use runtime::RuntimeDriver;
pub(crate) use runtime::{NoRuntime, lack};
pub use shared::NodeState;
pub(crate) use shared::{Endpoint, NodeShared, Siblings, Timings};
pub use standing::NodeStanding;
pub(crate) use value::Value;
pub(crate) use vote::{Answer, Ballot, VoteSink};

use std::time::Duration;

/// How long a connection of ours that broke can still deliver bytes to a live server: the user
/// timeout set on its socket (`TCP_USER_TIMEOUT`, RFC 5482; on Linux, elsewhere the system's).
pub(crate) const DOUBT: Duration = Duration::from_secs(10);
