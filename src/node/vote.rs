//! How a node's answer finds its way into a round.

use super::failure::NodeFailure;
use super::value::Value;
use crate::protocol::{NodeId, Time, Vote};
use crate::safe_waker::contain;
use std::sync::Arc;
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
    pub(crate) place: usize,
    /// Where the counters beside the keys stand, if a fencing token is wanted.
    pub(crate) number: Option<u64>,
    /// What stands at the key, if that was asked and it is a string.
    pub(crate) standing: Option<Value>,
}

impl Answer {
    pub(crate) fn of(vote: Vote) -> Self {
        Self {
            vote,
            failure: None,
            free_in: None,
            left: None,
            counts_from: None,
            place: 0,
            number: None,
            standing: None,
        }
    }

    pub(crate) fn failed(failure: NodeFailure) -> Self {
        Self { failure: Some(failure), ..Self::of(Vote::Failed) }
    }
}

/// Where votes are counted.
pub(crate) trait VoteSink: Send + Sync {
    /// Takes `node`'s answer. Called from the node's task; must not block.
    fn handle_answer(&self, node: NodeId, answer: Answer);
}

/// The right to one vote (I1). If it is dropped unused, as when a runtime is shut down, the node
/// has failed: a round never waits for a task that is gone.
pub(crate) struct Ballot {
    sink: Option<Arc<dyn VoteSink>>,
    node: NodeId,
}

impl Ballot {
    pub(crate) fn new(sink: Arc<dyn VoteSink>, node: NodeId) -> Self {
        Self { sink: Some(sink), node }
    }

    /// Whoever counts it may wake tasks: a waker that panics takes nothing else with it.
    pub(crate) fn cast(mut self, answer: Answer) {
        if let Some(sink) = self.sink.take() {
            contain(|| sink.handle_answer(self.node, answer));
        }
    }

    /// Gives the vote up without a trace: nobody waits for it any more.
    pub(crate) fn discard(mut self) {
        self.sink = None;
    }
}

impl Drop for Ballot {
    fn drop(&mut self) {
        if let Some(sink) = self.sink.take() {
            contain(|| sink.handle_answer(self.node, Answer::failed(NodeFailure::ShutDown)));
        }
    }
}
