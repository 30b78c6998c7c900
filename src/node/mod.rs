//! The addresses and credentials of the nodes, and the environment of a client.
//!
//! The environment contains the clock, the transport, the source of randomness and the observers. This module also
//! selects the runtime for the client's tasks. The [`coordinator`](crate::coordinator) owns the state of the nodes, and
//! the [`engine`](crate::engine) owns their connections.

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
pub use runtime::NoRuntime;
pub(crate) use runtime::Unready;
#[cfg(feature = "test-util")]
pub(crate) use runtime::{Driver, has_driver};
pub(crate) use shield::shield;
pub(crate) use target::{Node, Timings};
