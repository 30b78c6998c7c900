#![doc = include_str!("../README.md")]

pub mod _docs;
mod acquire;
#[cfg(feature = "blocking")]
pub mod blocking;
mod check;
mod client;
mod error;
mod lease;
mod node;
mod protocol;
mod random;
mod round;
mod sync;
#[cfg(feature = "test-util")]
pub mod test_util;
mod time;
mod transport;
mod wire;

pub use check::{ClockOffset, Finding, NodeCheck, Severity};
pub use client::{Acquire, Builder, LockState, NodeInfo, NodeStatus, Redlock, Status};
pub use client::{TryUsingError, UsingError};
pub use error::{AcquireError, ClientError, CloseError, ConfigError};
pub use error::{ExtendError, ReenterError, ReleaseError};
pub use lease::TokenRangeError;
pub use lease::{Ended, FencingToken, Lease, LeaseRef, ParseTokenError, ReleaseOutcome};
pub use node::{NodeState, RestartGuard, RuntimeDriver, VoteEligibility};
pub use protocol::{Loss, RetryPolicy};
pub use round::{Holder, NodeReport, NodeVote, Report};
pub use wire::{Fsync, NodeFailure, Persistence, Role};
