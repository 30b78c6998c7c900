//! Addresses and credentials of the nodes, and the environment of a client.
//!
//! The environment has the clock, transport, randomness and observers. Also contains the runtime for the tasks. The
//! state of the nodes is in [`coordinator`](crate::coordinator), and their connections are in [`engine`](crate::engine).

mod credentials;
mod environment;
mod own_runtime;
mod pool;
mod runtime;
mod shield;
mod target;

pub use credentials::Credentials;
pub(crate) use credentials::{CredentialSource, Login};
pub(crate) use environment::Environment;
#[cfg(feature = "test-util")]
pub(crate) use environment::Gates;
pub(crate) use pool::Pool;
#[cfg(feature = "test-util")]
pub(crate) use runtime::{Driver, lack};
pub(crate) use runtime::{NoRuntime, Unready};
pub(crate) use shield::shield;
pub(crate) use target::{Node, Timings};
