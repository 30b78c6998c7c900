//! One task per node, which owns its connection.
//!
//! Here live connections, the tasks that serve them, what a client keeps of a node over all of them, and
//! what is owed there. No word of Redis' language: that is in [`wire`](crate::wire). No socket: streams come
//! from [`transport`](crate::transport). No rule about what
//! nodes may have forgotten or how their clocks run: those are in [`protocol`](crate::protocol).
//!
//! [`Nodes`] are handles with mailboxes. Commands go in without waiting, from any thread, also
//! outside of a runtime; the node's task writes all that waits as one pipeline, in order (I8), and
//! casts each command's vote when its reply comes. A node that hangs or dies is kept apart here: its
//! task answers for it, and knows what it still has to be told.

mod apply_guards;
mod backlog;
mod ballot;
mod claim;
mod clocks;
mod connected;
mod connection;
mod environment;
mod gate;
mod guard;
mod handover;
mod inlet;
mod line;
mod links;
mod login;
mod mailbox;
mod observed;
mod peer;
mod pipe;
mod pool;
mod probe;
mod push;
mod queued_command;
mod reconnect;
mod runtime;
mod session;
mod set_up_attempt;
mod settle;
mod shared;
mod shield;
mod sleep;
mod task;
mod timer_clock;

pub(crate) use ballot::{Ballot, VoteSink};
pub(crate) use claim::Claim;
pub(crate) use clocks::Clocks;
pub(crate) use environment::Environment;
#[cfg(feature = "test-util")]
pub(crate) use environment::Gates;
#[cfg(feature = "test-util")]
pub use gate::Gate;
pub(crate) use guard::Guard;
pub use guard::RestartGuard;
pub(crate) use links::Links;
pub use login::Credentials;
pub(crate) use login::{CredentialSource, Login};
pub(crate) use pool::{Nodes, Pool};
pub(crate) use probe::{Probe, WallClock};
pub(crate) use push::PushSink;
pub(crate) use queued_command::QueuedCommand;
pub use runtime::RuntimeDriver;
pub(crate) use runtime::{NoRuntime, Unready, lack};
pub(crate) use shared::{Endpoint, NodeShared, Siblings, Timings};
pub(crate) use sleep::sleep_until;
