//! The public client: [`Builder`], [`Redlock`] and its methods.
//!
//! Methods validate their arguments, call the lower layers, and convert results to public types. The
//! [`coordinator`](crate::coordinator) makes all decisions.

mod acquire;
mod acquire_result;
mod address;
mod assembly;
mod builder;
mod config;
mod credentials;
mod election;
mod inner;
mod leaders;
mod leadership;
mod leases;
mod lock_admin;
mod lock_options;
mod node_info;
mod observed;
mod permits;
mod redlock;
mod restart_guard;
mod semaphore;
mod semaphore_status;
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
pub use election::{Election, ElectionBuilder};
#[cfg(feature = "test-util")]
pub(crate) use inner::Inner;
pub use leaders::{Leader, Leaders};
pub use leadership::Leadership;
pub use leases::HeldLease;
pub use node_info::NodeInfo;
pub use redlock::Redlock;
pub use restart_guard::RestartGuard;
pub use semaphore::Semaphore;
pub use semaphore_status::SemaphoreStatus;
pub use status::{LockState, NodeStatus, Status};
pub use using::{TryUsingError, UsingError};
#[cfg(feature = "blocking")]
pub(crate) use using::{split_errors, work_result};
