#![cfg_attr(docsrs, feature(doc_cfg))]
// Where the texts are that README names by their files: of two definitions of a link, the first counts.
#![doc = "[design]: crate::_docs::design"]
#![doc = "[safety]: crate::_docs::safety"]
#![doc = "[fencing]: crate::_docs::fencing"]
#![doc = "[operations]: crate::_docs::operations"]
#![doc = "[metrics]: crate::_docs::metrics"]
#![doc = "[performance]: crate::_docs::performance"]
#![cfg_attr(feature = "test-util", doc = "[testing]: crate::_docs::testing")]
#![doc = "[compare]: crate::_docs::compare"]
#![doc = "[blind spots]: crate::_docs::safety#what-no-client-can-see"]
#![doc = "[shell]: crate::_docs::operations#from-the-shell"]
#![doc = ""]
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
mod observe;
mod protocol;
mod random;
mod round;
#[cfg(feature = "test-util")]
mod server_model;
mod sync;
#[cfg(feature = "test-util")]
pub mod test_util;
mod time;
mod transport;
mod wire;

pub use check::{ClockOffset, Disagreement, Finding, NodeCheck, Severity};
pub use client::{Acquire, Builder, Config, HeldLease, LockState, NodeInfo, NodeStatus, Profile};
pub use client::{Redlock, Status, TryUsingError, UsingError};
pub use error::{AcquireError, ClientError, CloseError, ConfigError};
pub use error::{ExtendError, ReenterError, ReleaseError};
pub use lease::{Ended, Lease, LeaseRef, ReleaseOutcome};
pub use node::{Credentials, NodeState, RestartGuard, RuntimeDriver, VoteEligibility};
pub use observe::{AcquireBegun, AcquireEnded, AcquireOutcome, AttemptEnded, AttemptOutcome};
pub use observe::{Asked, ConnectFailed, ConnectionClosed, ConnectionOpened, NodeAnswer};
pub use observe::{ExtendBegun, ExtendEnded, ExtendOutcome, HandedOver, LeaseLost, Lock};
pub use observe::{FencingToken, ParseTokenError, TokenRangeError};
pub use observe::{Holder, NodeReport, NodeVote, Report};
pub use observe::{NodeAnswered, NodeChanged, NodeStanding, Observer, ReleaseBegun, ReleaseEnded};
pub use observe::{ReleaseResult, ReleasesOwed, RenewalFailing, Renewed, Resources};
pub use observe::{WaitBegun, WaitEnded};
pub use protocol::{Loss, RetryPolicy};
#[cfg(feature = "redis-1")]
pub use redis;
pub use wire::{Fsync, NodeFailure, Persistence, Role};
