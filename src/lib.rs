#![doc = include_str!("../README.md")]

pub mod _docs;
mod acquire;
mod address;
mod attempt;
#[cfg(feature = "blocking")]
pub mod blocking;
mod builder;
mod check;
mod checks;
mod clock;
mod config_error;
mod doubt;
mod driver;
mod ending;
mod error;
mod error_kind;
mod extension;
mod hold;
mod holder;
mod holding;
mod lease;
mod lease_ref;
mod line;
mod lock;
mod node;
mod node_info;
mod pause;
mod protocol;
mod redlock;
mod release;
mod report;
mod roster;
mod safe_waker;
mod settings;
mod sleeper;
mod status;
mod stopping;
mod tally;
#[cfg(feature = "test-util")]
pub mod test_util;
mod timer;
mod token;
mod using;
mod waiter;
mod waiters;
mod wakeup;

pub use acquire::Acquire;
pub use builder::Builder;
pub use check::{ClockOffset, Finding, NodeCheck, Severity};
pub use config_error::ConfigError;
pub use ending::Ended;
pub use error::{AcquireError, ClientError, CloseError, ExtendError, ReenterError, ReleaseError};
pub use holder::Holder;
pub use lease::Lease;
pub use lease_ref::LeaseRef;
pub use node::{
    Fsync, NodeFailure, NodeStanding, NodeState, Persistence, RestartGuard, Role, RuntimeDriver,
};
pub use node_info::NodeInfo;
pub use protocol::{Loss, RetryPolicy};
pub use redlock::Redlock;
pub use release::ReleaseOutcome;
pub use report::{NodeReport, NodeVote, Report};
pub use status::{LockState, NodeStatus, Status};
pub use token::{FencingToken, ParseTokenError, TokenRangeError};
pub use using::{TryUsingError, UsingError};
