//! The parsed form of a node's reply to a command.

use super::failure::NodeFailure;
use super::period_record::PeriodRecord;
use super::value::Value;
use crate::protocol::{Time, Vote};
use std::time::Duration;

/// A node's parsed reply to one command: the node's vote, and the details that the node reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Granted(Grant),
    /// A key holds another value, or is not a string.
    Denied(Conflict),
    /// A key does not exist.
    Missing {
        /// Value of the fencing counters, if the command was fenced.
        counter: Option<u64>,
    },
    /// The node executed the command, but its vote is ignored: the node may have lost locks, or its clock is
    /// unreliable.
    Excluded(NodeFailure),
    /// The command failed, or its reply is invalid. The state of the keys is unknown.
    Failed(NodeFailure),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The time from which the grant counts towards the quorum, or `None` if it counts immediately. A grant is delayed
    /// if the node's clock may have expired an earlier lease's key too early (I15).
    pub(crate) counts_from: Option<Time>,
    /// Value of the fencing counters, if the command was fenced.
    pub(crate) counter: Option<u64>,
    /// Index, among the command's keys, of the key that the node has set or deleted, if the command acquires or
    /// releases any one of several keys. Otherwise 0.
    pub(crate) key_index: usize,
    /// Whether the lock still has readers, if the command has released a reader.
    pub(crate) leaves_readers: bool,
}

/// The existing key that blocked a command, with the details that the node reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// The key's remaining TTL; `None` if the node did not report it.
    pub(crate) remaining: Option<RemainingTtl>,
    /// The key's value; `None` if the node did not report it, or if the key holds a type other than a string.
    pub(crate) value: Option<Value>,
    /// Index of the conflicting key among the command's keys.
    pub(crate) key_index: usize,
    /// Whether the node sends an invalidation when the key changes.
    pub(crate) is_watched: bool,
    /// Value of the fencing counters, if the command was fenced, or of a job's counter.
    pub(crate) counter: Option<u64>,
    /// The record of a job's counter.
    pub(crate) record: Option<Box<PeriodRecord>>,
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

    pub(crate) fn counter(&self) -> Option<u64> {
        match self {
            Self::Granted(Grant { counter, .. })
            | Self::Denied(Conflict { counter, .. })
            | Self::Missing { counter } => *counter,
            Self::Excluded(_) | Self::Failed(_) => None,
        }
    }

    pub(super) fn with_counter(self, counter: u64) -> Self {
        let counter = Some(counter);
        match self {
            Self::Granted(grant) => Self::Granted(Grant { counter, ..grant }),
            Self::Denied(conflict) => Self::Denied(Conflict { counter, ..conflict }),
            Self::Missing { .. } => Self::Missing { counter },
            Self::Excluded(_) | Self::Failed(_) => self,
        }
    }

    /// Creates the answer for a reply that is not valid for its command. `what` describes the reply, for example `an
    /// array`.
    pub(super) fn unexpected(what: &str) -> Self {
        Self::Failed(NodeFailure::Unexpected(what.into()))
    }
}

impl RemainingTtl {
    /// Parses a reply to `PTTL`. Returns a TTL of zero for a missing key, and `None` for a number that `PTTL` never
    /// returns.
    pub(super) fn of(pttl: i64) -> Option<Self> {
        match pttl {
            -2 => Some(Self::Expires(Duration::ZERO)),
            -1 => Some(Self::NoExpiry),
            pttl => u64::try_from(pttl).ok().map(|ms| Self::Expires(Duration::from_millis(ms))),
        }
    }

    /// Returns the remaining TTL, or `Duration::MAX` for a key without expiry.
    pub(crate) fn at_most(self) -> Duration {
        self.duration().unwrap_or(Duration::MAX)
    }

    /// Returns the remaining TTL, or `None` for a key without expiry.
    pub(crate) fn duration(self) -> Option<Duration> {
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
            (RemainingTtl::NoExpiry.duration(), RemainingTtl::Expires(ms(7)).duration()),
            (None, Some(ms(7)))
        );
    }
}
