//! Parsed replies of a node.

use super::failure::NodeFailure;
use super::value::Value;
use crate::protocol::{Time, Vote};
use std::time::Duration;

/// Reply of a node: a vote with its details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Granted(Grant),
    /// A key holds another value, or another type than a string.
    Denied(Conflict),
    /// A key does not exist.
    Missing {
        /// Value of the fencing counters, for a fenced command.
        number: Option<u64>,
    },
    /// The node executed the command, but its vote does not count: it may have forgotten locks, or its clock is
    /// suspect.
    Excluded(NodeFailure),
    /// The state of the keys is unknown.
    Failed(NodeFailure),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grant {
    /// When the grant starts to count; `None`: immediately (I15).
    pub(crate) counts_from: Option<Time>,
    /// Value of the fencing counters, for a fenced command.
    pub(crate) number: Option<u64>,
}

/// The existing key that blocked a command: holder, remaining TTL, and whether the node will push its change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// `None` if the command did not request it.
    pub(crate) remaining: Option<RemainingTtl>,
    /// `None` if the command did not request it, or the value is not a string.
    pub(crate) value: Option<Value>,
    /// Index of the key among the command's keys.
    pub(crate) place: usize,
    /// True if the node will push an invalidation when the key changes.
    pub(crate) is_watched: bool,
    /// Value of the fencing counters, for a fenced command.
    pub(crate) number: Option<u64>,
}

/// Remaining TTL of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemainingTtl {
    Expires(Duration),
    NoExpiry,
}

impl Answer {
    pub(crate) fn vote(&self) -> Vote {
        match self {
            Self::Granted(_) => Vote::Granted,
            Self::Denied(_) => Vote::Denied,
            Self::Missing { .. } => Vote::Missing,
            Self::Excluded(_) | Self::Failed(_) => Vote::Failed,
        }
    }

    /// Value of the fencing counters, if the reply contains it.
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Self::Granted(Grant { number, .. })
            | Self::Denied(Conflict { number, .. })
            | Self::Missing { number } => *number,
            Self::Excluded(_) | Self::Failed(_) => None,
        }
    }

    pub(super) fn with_number(self, number: u64) -> Self {
        let number = Some(number);
        match self {
            Self::Granted(grant) => Self::Granted(Grant { number, ..grant }),
            Self::Denied(conflict) => Self::Denied(Conflict { number, ..conflict }),
            Self::Missing { .. } => Self::Missing { number },
            Self::Excluded(_) | Self::Failed(_) => self,
        }
    }

    /// A reply that does not fit its command; `what` is the kind of the reply.
    pub(super) fn unexpected(what: &str) -> Self {
        Self::Failed(NodeFailure::Unexpected(what.into()))
    }
}

impl RemainingTtl {
    /// Parses a reply to `PTTL`. A missing key has zero left. `None` for a reply that `PTTL` never gives.
    pub(super) fn of(pttl: i64) -> Option<Self> {
        match pttl {
            -2 => Some(Self::Expires(Duration::ZERO)),
            -1 => Some(Self::NoExpiry),
            pttl => u64::try_from(pttl).ok().map(|ms| Self::Expires(Duration::from_millis(ms))),
        }
    }

    /// `Duration::MAX` for a key without expiry.
    pub(crate) fn at_most(self) -> Duration {
        self.limited().unwrap_or(Duration::MAX)
    }

    /// `None` for a key without expiry.
    pub(crate) fn limited(self) -> Option<Duration> {
        match self {
            Self::Expires(remaining) => Some(remaining),
            Self::NoExpiry => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pttl_replies_are_parsed() {
        let ms = Duration::from_millis;
        assert_eq!(RemainingTtl::of(70), Some(RemainingTtl::Expires(ms(70))));
        assert_eq!(RemainingTtl::of(0), Some(RemainingTtl::Expires(ms(0))));
        assert_eq!(RemainingTtl::of(-1), Some(RemainingTtl::NoExpiry));
        assert_eq!(RemainingTtl::of(-2), Some(RemainingTtl::Expires(ms(0))), "missing key");
        assert_eq!((RemainingTtl::of(-3), RemainingTtl::of(i64::MIN)), (None, None));
        assert_eq!(
            (RemainingTtl::NoExpiry.limited(), RemainingTtl::Expires(ms(7)).limited()),
            (None, Some(ms(7)))
        );
    }
}
