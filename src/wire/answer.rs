//! What a node says to a command.

use super::failure::NodeFailure;
use super::value::Value;
use crate::protocol::{Time, Vote};
use std::time::Duration;

/// A vote, and why it is Failed if it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) vote: Vote,
    pub(crate) failure: Option<NodeFailure>,
    /// When Denied: how long the key that is in the way has to live, if the node was asked.
    pub(crate) free_in: Option<Duration>,
    /// When an extension is Granted: how long the key had to live before, if not for ever.
    pub(crate) left: Option<Duration>,
    /// When granted: from when on that counts, if not at once (I15).
    pub(crate) counts_from: Option<Time>,
    /// Which of several keys that is.
    pub(crate) index: usize,
    /// Where the counters beside the keys stand, if a fencing token is wanted.
    pub(crate) number: Option<u64>,
    /// What stands at the key, if that was asked and it is a string.
    pub(crate) found: Option<Value>,
}

impl Answer {
    pub(crate) fn of(vote: Vote) -> Self {
        Self {
            vote,
            failure: None,
            free_in: None,
            left: None,
            counts_from: None,
            index: 0,
            number: None,
            found: None,
        }
    }

    pub(crate) fn failed(failure: NodeFailure) -> Self {
        Self { failure: Some(failure), ..Self::of(Vote::Failed) }
    }
}
