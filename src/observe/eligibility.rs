//! Eligibility of nodes to vote.

use crate::wire::{NodeFailure, short};
use std::fmt;
use std::time::Duration;

/// Eligibility of a node to vote: whether its grants count towards the quorum for this client. If
/// the grants do not count, the variant contains the reason, and the remaining time if it is known.
///
/// The `Display` output is a short phrase, for example `counted` or `restarted 3.1s ago, counts
/// again in 60.1s`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(tag = "kind", content = "detail", rename_all = "snake_case"))]
pub enum VoteEligibility {
    /// The node's grants count towards the quorum.
    Counted,
    /// The node is not connected or is unresponsive, so it cannot grant locks. See
    /// [`NodeInfo::state`](crate::NodeInfo::state).
    Unavailable,
    /// The node's grants count after a delay of `lag`, because the node's clock has stepped
    /// forward. During this delay, the previous holder may still rely on its lock. An attempt that
    /// needs this node's grant waits for the delay, provided that the lock is still valid
    /// afterwards.
    Deferred {
        /// Delay from a grant until the grant counts. The delay decreases over time. It reaches
        /// zero when every key that was set before the clock step has expired.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "lag_seconds", serialize_with = "crate::wire::seconds")
        )]
        lag: Duration,
    },
    /// The server's uptime was short when this client first connected to it, although the
    /// deployment is not new. The server may have lost locks in a restart, so its grants do not
    /// count until it is older. See [`RestartGuard::Observed`](crate::RestartGuard::Observed).
    RecentStart {
        /// Uptime of the server: the reported uptime plus the time since the report.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "up_for_seconds", serialize_with = "crate::wire::seconds")
        )]
        up_for: Duration,
        /// Time until the node's grants count.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "counts_in_seconds", serialize_with = "crate::wire::seconds")
        )]
        counts_in: Duration,
    },
    /// The node's grants do not count, for the given reason. If the reason is
    /// [`Restarted`](NodeFailure::Restarted), [`MaybeRestarted`](NodeFailure::MaybeRestarted) or
    /// [`Flushed`](NodeFailure::Flushed), the node's votes on extensions and releases still count.
    /// If the reason is [`Suspect`](NodeFailure::Suspect), only its votes on releases count.
    Excluded(NodeFailure),
}

impl VoteEligibility {
    /// Returns the time until the node's grants count towards the quorum.
    ///
    /// The time is zero if the grants count now or are [deferred](Self::Deferred), or if the
    /// remaining time is unknown. It is also zero if the node is
    /// [unavailable](Self::Unavailable): its grants count as soon as the node is available again.
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
