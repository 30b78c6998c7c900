//! [`VoteEligibility`]: whether a node's grants count.

use crate::wire::{NodeFailure, short};
use std::fmt;
use std::time::Duration;

/// Whether a node's grants count for this client, and if not, why and for how long.
///
/// Prints as a short phrase, for example `counted` or `restarted 3.1s ago, counts again in 60.1s`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VoteEligibility {
    /// Grants count.
    Counted,
    /// The node is not asked for locks: it is disconnected or stalled. See
    /// [`NodeInfo::state`](crate::NodeInfo::state).
    Unavailable,
    /// Grants count after a delay of `lag`, because the node's clock has stepped forward. Until
    /// then, the previous holder of the lock may still rely on it. An attempt that needs this node
    /// waits for the delay, if the lock is still valid after it.
    Deferred {
        /// The delay. It decreases, and ends when every key that was set before the step has
        /// expired.
        lag: Duration,
    },
    /// The server had started only recently when this client first connected to it, in a deployment
    /// that is not new. It may have lost locks in a restart, so its grants do not count until it is
    /// older; see [`RestartGuard::Observed`](crate::RestartGuard::Observed).
    RecentStart {
        /// Known uptime of the server.
        up_for: Duration,
        /// Time until its grants count.
        counts_in: Duration,
    },
    /// Grants do not count, for this reason. After [`Restarted`](NodeFailure::Restarted),
    /// [`MaybeRestarted`](NodeFailure::MaybeRestarted) or [`Flushed`](NodeFailure::Flushed), votes
    /// on extensions and releases still count. After [`Suspect`](NodeFailure::Suspect), only votes
    /// on releases count.
    Excluded(NodeFailure),
}

impl VoteEligibility {
    /// Time until grants count again. Zero if they count now, are [deferred](Self::Deferred), or
    /// will count as soon as the node is available.
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
                write!(f, "grants delayed by {}: its clock has stepped forward", short(*lag))
            }
            Self::RecentStart { up_for, counts_in } => {
                let (up_for, counts_in) = (short(*up_for), short(*counts_in));
                write!(f, "started recently: up for {up_for}, counts in {counts_in}")
            }
            Self::Excluded(failure) => failure.fmt(f),
        }
    }
}
