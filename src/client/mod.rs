//! The public client: [`Builder`], [`Redlock`] and its methods.
//!
//! Methods validate their arguments, call the modules below, and convert results to public types. Votes are counted in
//! `round`, not here.

mod acquire;
mod address;
#[cfg(not(quorlock_coordinator))]
mod asking;
#[cfg(quorlock_coordinator)]
#[path = "engine_asking.rs"]
mod asking;
mod assembly;
mod builder;
mod config;
mod credentials;
#[cfg(not(quorlock_coordinator))]
mod driver_assembly;
#[cfg(quorlock_coordinator)]
mod engine_assembly;
#[cfg(not(quorlock_coordinator))]
mod explain;
#[cfg(quorlock_coordinator)]
#[path = "engine_explain.rs"]
mod explain;
mod inner;
mod leases;
#[cfg(not(quorlock_coordinator))]
mod listeners;
mod lock_options;
mod node_info;
mod observed;
mod profile;
mod redlock;
mod settings;
mod status;
#[cfg(feature = "serde")]
mod text;
#[cfg(feature = "tls-rustls")]
mod tls;
mod using;
#[cfg(feature = "serde")]
mod variables;

pub use acquire::Acquire;
pub use builder::Builder;
pub use config::Config;
#[cfg(feature = "test-util")]
pub(crate) use inner::Inner;
pub use leases::HeldLease;
pub use node_info::NodeInfo;
pub use profile::Profile;
pub use redlock::Redlock;
pub use status::{LockState, NodeStatus, Status};
pub use using::{TryUsingError, UsingError};
#[cfg(feature = "blocking")]
pub(crate) use using::{finished, sorted};
