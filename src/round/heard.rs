//! What a node said in a round.

use crate::observe::{Holder, NodeVote};
use crate::protocol::Time;
use crate::wire::{Answer, Conflict, Grant, NodeFailure, RemainingTtl};
use std::num::NonZeroU64;

/// What a node said, and when that was heard.
pub(super) struct Heard {
    pub(super) at: Time,
    said: Said,
}

/// An answer in as little room as it takes: a lease keeps those that it was acquired by.
enum Said {
    Granted(Option<NonZeroU64>),
    /// A grant that counts only from then on: that is seldom.
    GrantedLater(Box<(Time, Option<NonZeroU64>)>),
    Other(Box<Answer>),
}

impl From<Answer> for Said {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Granted(Grant { counts_from, number, .. }) => {
                // A grant leaves no counter at 0.
                let number = number.and_then(NonZeroU64::new);
                counts_from.map_or(Self::Granted(number), |counts_from| {
                    Self::GrantedLater((counts_from, number).into())
                })
            }
            other => Self::Other(other.into()),
        }
    }
}

impl Heard {
    pub(super) fn new(at: Time, answer: Answer) -> Self {
        Self { at, said: answer.into() }
    }

    /// What a grant is that did not count by the end.
    pub(super) fn void_vote(&self) -> NodeVote {
        self.counts_from().map_or(NodeVote::Granted, |counts_from| {
            let ahead = counts_from.since(self.at);
            NodeVote::Failed(NodeFailure::Suspect { ahead, counts_in: ahead })
        })
    }

    /// From when on a grant counts, if not at once.
    pub(super) fn counts_from(&self) -> Option<Time> {
        if let Said::GrantedLater(grant) = &self.said { Some(grant.0) } else { None }
    }

    /// Where the counters beside the keys stand, if the node told.
    pub(super) fn number(&self) -> Option<u64> {
        match &self.said {
            Said::Granted(number) => number.map(NonZeroU64::get),
            Said::GrantedLater(grant) => grant.1.map(NonZeroU64::get),
            Said::Other(answer) => answer.number(),
        }
    }

    /// What was said other than that it is granted.
    pub(super) fn other(&self) -> Option<&Answer> {
        if let Said::Other(answer) = &self.said { Some(answer) } else { None }
    }

    /// What is in the way, as the node tells.
    pub(super) fn obstacle(&self) -> Option<&Conflict> {
        if let Answer::Denied(obstacle) = self.other()? { Some(obstacle) } else { None }
    }

    /// Who is in the way, if the node was asked.
    pub(super) fn holder(&self) -> Option<Holder> {
        let Conflict { value, remaining, .. } = self.obstacle()?;
        Some(Holder::new(value.clone()?, remaining.and_then(RemainingTtl::limited)))
    }

    pub(super) fn is_stalled(&self) -> bool {
        matches!(self.other(), Some(Answer::Failed(NodeFailure::Stalled(_))))
    }

    pub(super) fn vote(&self) -> NodeVote {
        match self.other() {
            None | Some(Answer::Granted(_)) => NodeVote::Granted,
            Some(Answer::Denied(_)) => NodeVote::Held,
            Some(Answer::Missing { .. }) => NodeVote::Missing,
            Some(Answer::Excluded(why) | Answer::Failed(why)) => NodeVote::Failed(why.clone()),
        }
    }
}
