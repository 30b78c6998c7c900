//! What users configure and call.
//!
//! Here live the builder, the client, and each of its verbs: they check what they are given, hand it to the
//! rooms below, and put what comes of it into words. No vote is counted here.

mod acquire;
mod address;
mod builder;
mod config;
mod credentials;
mod explain;
mod leases;
mod node_info;
mod observed;
mod profile;
mod redlock;
#[cfg(feature = "serde")]
mod serialized;
mod settings;
mod status;
mod text;
#[cfg(feature = "tls-rustls")]
mod tls;
mod using;
mod variables;

pub use acquire::Acquire;
pub use builder::Builder;
pub use config::Config;
pub use leases::HeldLease;
pub use node_info::NodeInfo;
pub use profile::Profile;
#[cfg(feature = "test-util")]
pub(crate) use redlock::Inner;
pub use redlock::Redlock;
pub use status::{LockState, NodeStatus, Status};
pub use using::{TryUsingError, UsingError};
#[cfg(feature = "blocking")]
pub(crate) use using::{finished, sorted};
