#![doc = include_str!("../README.md")]

pub mod _docs;
mod acquire;
mod attempt;
#[cfg(feature = "blocking")]
pub mod blocking;
mod builder;
mod check;
mod clock;
mod driver;
mod error;
mod hold;
mod holding;
mod lease;
mod lease_ref;
mod node;
mod protocol;
mod redlock;
mod release;
mod report;
mod roster;
mod settings;
mod sleeper;
mod status;
mod tally;
#[cfg(feature = "test-util")]
pub mod test_util;
mod timer;
mod token;
mod using;
mod waiter;
mod waiters;

pub use acquire::Acquire;
pub use builder::Builder;
pub use check::{ClockOffset, Finding, NodeCheck, Severity};
pub use error::{
    AcquireError, ClientError, CloseError, ConfigError, ExtendError, ReenterError, ReleaseError,
};
pub use lease::Lease;
pub use lease_ref::LeaseRef;
pub use node::{Fsync, NodeFailure, NodeStanding, NodeState, Persistence, RestartGuard, Role};
pub use protocol::{Loss, RetryPolicy};
pub use redlock::{NodeInfo, Redlock};
pub use release::ReleaseOutcome;
pub use report::{NodeReport, NodeVote, Report};
pub use status::{Holder, LockState, NodeStatus, Status};
pub use token::{FencingToken, ParseTokenError};
pub use using::UsingError;
