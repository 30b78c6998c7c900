//! Whether what a node grants counts.

use crate::wire::{NodeFailure, short};
use std::fmt;
use std::time::Duration;

/// Whether what a node grants counts for this client, and if not, why and for how long.
///
/// Prints as a short phrase, for example `counted` or `restarted 3.1s ago, counts again in 60.1s`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VoteEligibility {
    /// It counts.
    Counted,
    /// It is not asked for locks now: it is not connected, or hangs. See
    /// [`NodeInfo::state`](crate::NodeInfo::state).
    Unavailable,
    /// It counts; but a lock that it grants does not before so much has passed, as its clock has stepped
    /// ahead: until then, whoever held the lock before may rely on it. An attempt that needs this node
    /// waits for that, if the lock is still of use then.
    Deferred {
        /// How much later it counts. This gets less, and ends when every key has ended that was set
        /// before the step.
        lag: Duration,
    },
    /// The server had been up for only a short time when this client saw it first, and the deployment is
    /// not new: it may have forgotten locks in a restart. Until it is older, what it grants does not
    /// count; see [`RestartGuard::Observed`](crate::RestartGuard::Observed).
    RecentStart {
        /// How long it has been up, as far as it is known.
        up_for: Duration,
        /// How long it is still young.
        counts_in: Duration,
    },
    /// It does not count, for this reason: [`Restarted`](NodeFailure::Restarted),
    /// [`MaybeRestarted`](NodeFailure::MaybeRestarted) or [`Flushed`](NodeFailure::Flushed), while it
    /// counts for extensions and releases; or [`Suspect`](NodeFailure::Suspect), while it counts for
    /// releases only.
    Excluded(NodeFailure),
}

impl VoteEligibility {
    /// How long until what it grants counts again; zero if it does now, or as soon as it is available.
    pub fn counts_in(&self) -> Duration {
        match self {
            Self::Counted | Self::Deferred { .. } | Self::Unavailable => Duration::ZERO,
            Self::RecentStart { counts_in, .. } => *counts_in,
            Self::Excluded(failure) => failure.counts_in().unwrap_or_default(),
        }
    }
}

impl fmt::Display for VoteEligibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counted => f.write_str("counted"),
            Self::Unavailable => f.write_str("not available"),
            Self::Deferred { lag } => {
                write!(f, "counted {} later: its clock has stepped ahead", short(*lag))
            }
            Self::RecentStart { up_for, counts_in } => {
                write!(f, "young: up for {}, old in {}", short(*up_for), short(*counts_in))
            }
            Self::Excluded(failure) => failure.fmt(f),
        }
    }
}
