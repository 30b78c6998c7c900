//! A node's parsed replies.

use super::failure::NodeFailure;
use super::value::Value;
use crate::protocol::{Time, Vote};
use std::time::Duration;

/// Parsed reply of a node: a vote with its details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Granted(Grant),
    /// A key holds another value, or a type other than a string.
    Denied(Conflict),
    /// A key does not exist.
    Missing {
        /// Value of the fencing counters, if the command was fenced.
        number: Option<u64>,
    },
    /// The node executed the command, but its vote does not count. The node may have forgotten locks, or its clock is
    /// suspect.
    Excluded(NodeFailure),
    /// The command failed, or its reply is invalid. The state of the keys is unknown.
    Failed(NodeFailure),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Time at which the grant starts to count; `None` if the grant counts immediately (I15).
    pub(crate) counts_from: Option<Time>,
    /// Value of the fencing counters, if the command was fenced.
    pub(crate) number: Option<u64>,
}

/// The existing key that blocked a command, with the details that the node reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// The key's remaining TTL; `None` if the node did not report it.
    pub(crate) remaining: Option<RemainingTtl>,
    /// The key's value; `None` if the node did not report it, or if the key holds a type other than a string.
    pub(crate) value: Option<Value>,
    /// Index of the key among the command's keys.
    pub(crate) place: usize,
    /// Whether the node will push an invalidation when the key changes.
    pub(crate) is_watched: bool,
    /// Value of the fencing counters, if the command was fenced.
    pub(crate) number: Option<u64>,
}

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

    /// Creates the failure for a reply that is not valid for its command. `what` names the kind of the reply.
    pub(super) fn unexpected(what: &str) -> Self {
        Self::Failed(NodeFailure::Unexpected(what.into()))
    }
}

impl RemainingTtl {
    /// Parses a reply to `PTTL`. A missing key has a remaining TTL of zero. Returns `None` for a number that `PTTL`
    /// never returns.
    pub(super) fn of(pttl: i64) -> Option<Self> {
        match pttl {
            -2 => Some(Self::Expires(Duration::ZERO)),
            -1 => Some(Self::NoExpiry),
            pttl => u64::try_from(pttl).ok().map(|ms| Self::Expires(Duration::from_millis(ms))),
        }
    }

    /// Returns the remaining TTL, or `Duration::MAX` for a key without expiry.
    pub(crate) fn at_most(self) -> Duration {
        self.limited().unwrap_or(Duration::MAX)
    }

    /// Returns the remaining TTL, or `None` for a key without expiry.
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
