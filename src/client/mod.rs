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
mod job_counter;
mod job_result;
mod job_run;
mod job_start;
mod leaders;
mod leadership;
mod leases;
mod lock_admin;
mod lock_options;
mod node_info;
mod observed;
mod once;
mod permits;
mod redlock;
mod restart_guard;
mod rw_lock;
mod semaphore;
mod semaphore_status;
mod settings;
mod started_job;
mod status;
mod target;
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
pub use job_result::{JobError, JobOutcome};
pub use leaders::{Leader, Leaders};
pub use leadership::Leadership;
pub use leases::HeldLease;
pub use node_info::NodeInfo;
pub use once::{Once, ScheduledJob};
pub use redlock::Redlock;
pub use restart_guard::RestartGuard;
pub use rw_lock::RwLock;
pub use semaphore::Semaphore;
pub use semaphore_status::SemaphoreStatus;
pub use started_job::StartedJob;
pub use status::{LockState, NodeStatus, Status};
pub use using::{TryUsingError, UsingError};
#[cfg(feature = "blocking")]
pub(crate) use using::{split_errors, work_result};
