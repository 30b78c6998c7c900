//! Events of a client, and their delivery to observers, `tracing` and metrics.
//!
//! Events are delivered by direct calls, without holding a lock.
//!
//! If no observer, subscriber or recorder is installed, [`Observers::wants`] costs a few loads and branches. The client
//! then builds no events and reads no clock for them.

mod event;
mod holder;
mod lock;
mod node_event;
mod node_standings;
mod observer;
mod observers;
mod report;
mod token;
mod told;

#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "tracing")]
mod rate_limit;
#[cfg(feature = "tracing")]
mod spans;

pub use event::{
    AcquireBegun, AcquireEnded, AcquireOutcome, AttemptEnded, AttemptOutcome, ExtendBegun,
    ExtendEnded, ExtendOutcome, HandedOver, LeaseLost, ReleaseBegun, ReleaseEnded, ReleaseResult,
    RenewalFailing, Renewed, WaitBegun, WaitEnded,
};
pub(crate) use holder::Excess;
pub use holder::Holder;
pub use lock::{Lock, Resources};
pub(crate) use lock::{Tag, shown};
pub use node_event::{
    Asked, ConnectFailed, ConnectionClosed, ConnectionOpened, NodeAnswer, NodeAnswered,
    NodeChanged, NodeStanding, ReleasesOwed,
};
pub use observer::Observer;
pub(crate) use observers::Observers;
pub use report::{NodeReport, NodeVote, Report};
pub use token::{FencingToken, ParseTokenError, TokenRangeError};
pub(crate) use told::Weight;
