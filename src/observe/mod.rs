//! Events of a client, and their delivery to observers, `tracing` and metrics.
//!
//! The client delivers each event by calling the receivers directly. It holds no mutex during these calls.
//!
//! If no observer, subscriber or recorder is installed, the client neither builds events nor reads a clock for them.
//! [`Observers::emit`] then costs only a few loads and branches.

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
mod event_level;
mod holder;
mod node_health;
mod node_state;
mod observer;
mod observers;
mod report;
mod token;

#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "tracing")]
mod rate_limit;
#[cfg(feature = "tracing")]
mod spans;

pub use eligibility::VoteEligibility;
pub(crate) use event::{AcquireTag, escape_name};
pub(crate) use event_level::EventLevel;
pub(crate) use holder::HeldBy;
pub use holder::Holder;
pub(crate) use node_health::HealthRecord;
pub use node_state::NodeState;
pub use observer::Observer;
pub(crate) use observers::Observers;
pub use report::{NodeReport, NodeVote, Report};
pub use token::{FencingToken, ParseTokenError, TokenRangeError};
