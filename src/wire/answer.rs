//! What a node says to a command.

use super::failure::NodeFailure;
use super::value::Value;
use crate::protocol::{Time, Vote};
use std::time::Duration;

/// A node's answer: a vote, with what that vote can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The node did what it was asked.
    Granted(Grant),
    /// Another value stands at a key, or something that is no lock of ours.
    Denied(Obstacle),
    /// There is no such key.
    Missing {
        /// Where the counters beside the keys stand, if a fencing token is wanted.
        number: Option<u64>,
    },
    /// The node did what it was asked, and that does not count: it may have forgotten locks, or its
    /// clock is not to be trusted. Nothing is wrong with its reply.
    Excluded(NodeFailure),
    /// Nothing is known of the keys, for this reason.
    Failed(NodeFailure),
}

/// What a node tells when it did what it was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grant {
    /// To an extension: how long the key had to live before, unless it stood for ever.
    pub(crate) left: Option<Duration>,
    /// From when on the grant counts, if not at once (I15).
    pub(crate) counts_from: Option<Time>,
    /// Where the counters beside the keys stand, if a fencing token is wanted.
    pub(crate) number: Option<u64>,
}

/// What a node tells of the key that is in the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Obstacle {
    /// How long it has to live, if the node was asked.
    pub(crate) remaining: Option<Remaining>,
    /// What stands there, if that was asked and it is a string.
    pub(crate) value: Option<Value>,
    /// Which of several keys it is.
    pub(crate) place: usize,
    /// True if the node tells when it changes.
    pub(crate) is_watched: bool,
    /// Where the counters beside the keys stand, if a fencing token is wanted.
    pub(crate) number: Option<u64>,
}

/// How long a key has to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remaining {
    For(Duration),
    ForEver,
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

    /// Where the counters beside the keys stand, if the node told.
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Self::Granted(Grant { number, .. })
            | Self::Denied(Obstacle { number, .. })
            | Self::Missing { number } => *number,
            Self::Excluded(_) | Self::Failed(_) => None,
        }
    }

    /// The same answer, with where the counters stand.
    pub(super) fn with_number(self, number: u64) -> Self {
        let number = Some(number);
        match self {
            Self::Granted(grant) => Self::Granted(Grant { number, ..grant }),
            Self::Denied(obstacle) => Self::Denied(Obstacle { number, ..obstacle }),
            Self::Missing { .. } => Self::Missing { number },
            Self::Excluded(_) | Self::Failed(_) => self,
        }
    }

    /// The answer to a reply that is none; `what` says what came instead.
    pub(super) fn unexpected(what: &str) -> Self {
        Self::Failed(NodeFailure::Unexpected(what.into()))
    }
}

impl Remaining {
    /// What `PTTL` says: a key that is gone has nothing left. `None` for what it never says.
    pub(super) fn of(pttl: i64) -> Option<Self> {
        match pttl {
            -2 => Some(Self::For(Duration::ZERO)),
            -1 => Some(Self::ForEver),
            pttl => u64::try_from(pttl).ok().map(|ms| Self::For(Duration::from_millis(ms))),
        }
    }

    /// The longest time if it is for ever: nobody waits for that.
    pub(crate) fn at_most(self) -> Duration {
        self.limited().unwrap_or(Duration::MAX)
    }

    /// `None` if it is for ever.
    pub(crate) fn limited(self) -> Option<Duration> {
        match self {
            Self::For(remaining) => Some(remaining),
            Self::ForEver => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pttl_says_is_gone_for_a_while_or_for_ever() {
        let ms = Duration::from_millis;
        assert_eq!(Remaining::of(70), Some(Remaining::For(ms(70))));
        assert_eq!(Remaining::of(0), Some(Remaining::For(ms(0))));
        assert_eq!(Remaining::of(-1), Some(Remaining::ForEver));
        assert_eq!(Remaining::of(-2), Some(Remaining::For(ms(0))), "gone");
        assert_eq!((Remaining::of(-3), Remaining::of(i64::MIN)), (None, None));
        assert_eq!(
            (Remaining::ForEver.limited(), Remaining::For(ms(7)).limited()),
            (None, Some(ms(7)))
        );
    }
}
