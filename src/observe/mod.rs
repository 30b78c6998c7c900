//! What a client tells of itself while it works: events, and who is told.
//!
//! Here live [`Observer`], its events, the handle by which the rooms above tell them, and what the library
//! itself makes of them (lines and spans, metrics). No event is born here, and nothing is decided: whoever tells does not wait for who
//! is told, and holds no lock meanwhile.
//!
//! Without an observer, a subscriber and a recorder, [`Observers::wants`] is a few loads and branches: no event is
//! built, no clock is read, nothing is allocated.

mod event;
mod holder;
mod lock;
mod node_event;
mod observer;
mod observers;
mod report;
mod roll;
#[cfg(feature = "serde")]
mod serialized;
mod token;
mod told;

#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "tracing")]
mod pace;
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
pub(crate) use observers::{Observers, Weight};
pub use report::{NodeReport, NodeVote, Report};
pub use token::{FencingToken, ParseTokenError, TokenRangeError};
