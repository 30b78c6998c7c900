//! What a client needs to reach its nodes: their addresses and credentials, and the machine that it runs on.
//!
//! Contains the environment of a client (clock, transport, randomness, observers) and the runtime for its tasks. The
//! state of the nodes is in [`coordinator`](crate::coordinator), and their connections are in [`engine`](crate::engine).

mod credentials;
mod environment;
mod gate;
mod pool;
mod runtime;
mod shield;
mod target;
mod timer;

pub use credentials::Credentials;
pub(crate) use credentials::{CredentialSource, Login};
pub(crate) use environment::Environment;
#[cfg(feature = "test-util")]
pub(crate) use environment::Gates;
#[cfg(feature = "test-util")]
pub use gate::Gate;
pub(crate) use pool::Pool;
pub use runtime::RuntimeDriver;
#[cfg(feature = "test-util")]
pub(crate) use runtime::lack;
pub(crate) use runtime::{NoRuntime, Unready};
pub(crate) use shield::shield;
pub(crate) use target::{Node, Timings};
