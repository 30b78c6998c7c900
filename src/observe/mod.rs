//! Events of a client, and their delivery to observers, `tracing` and metrics.
//!
//! The client delivers events by direct calls, without holding a lock.
//!
//! Without an observer, a subscriber and a recorder, [`Observers::emit`] costs a few loads and branches. The client
//! then builds no events and reads no clock for them.

/// Implements `Debug` with the `Display` output, because logs often format errors with `Debug`.
macro_rules! debug_as_display {
    ($($name:ty),*) => {
        $(impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        })*
    };
}
pub(crate) use debug_as_display;

mod eligibility;
pub mod event;
mod holder;
mod node_health;
mod node_state;
mod observer;
mod observers;
mod report;
mod token;
mod weight;

#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "tracing")]
mod rate_limit;
#[cfg(feature = "tracing")]
mod spans;

pub use eligibility::VoteEligibility;
pub(crate) use event::{Tag, shown};
pub(crate) use holder::HeldBy;
pub use holder::Holder;
pub(crate) use node_health::HealthRecord;
pub use node_state::NodeState;
pub use observer::Observer;
pub(crate) use observers::Observers;
pub use report::{NodeReport, NodeVote, Report};
pub use token::{FencingToken, ParseTokenError, TokenRangeError};
pub(crate) use weight::Weight;
