#![doc = include_str!("../README.md")]

pub mod _docs;
mod acquire;
mod builder;
mod clock;
mod driver;
mod error;
mod hold;
mod holding;
mod lease;
mod node;
mod protocol;
mod redlock;
mod report;
mod sleeper;
mod tally;
mod timer;
mod using;
mod waiters;

pub use acquire::Acquire;
pub use builder::Builder;
pub use error::{AcquireError, CloseError, ConfigError, ExtendError, ReleaseError};
pub use lease::{Lease, ReleaseOutcome};
pub use node::{NodeFailure, NodeState};
pub use protocol::{Loss, RetryPolicy};
pub use redlock::{NodeInfo, Redlock};
pub use report::{NodeReport, NodeVote, Report};
pub use using::UsingError;
