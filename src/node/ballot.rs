//! How a node's answer finds its way into a round.

use crate::protocol::{NodeId, Time};
use crate::sync::contain;
use crate::wire::{Answer, NodeFailure};
use std::sync::Arc;

/// Where votes are counted.
pub(crate) trait VoteSink: Send + Sync {
    /// Takes `node`'s answer, and by when that was read, if that is known. Called from the node's task; must not block.
    fn handle_answer(&self, node: NodeId, answer: Answer, at: Option<Time>);
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
    pub(crate) fn cast(self, answer: Answer) {
        self.cast_by(answer, None);
    }

    /// Casts what was read by `at`: the answers to one pipeline are read together, and the clock once.
    pub(crate) fn cast_at(self, answer: Answer, at: Time) {
        self.cast_by(answer, Some(at));
    }

    fn cast_by(mut self, answer: Answer, at: Option<Time>) {
        if let Some(sink) = self.sink.take() {
            contain(|| sink.handle_answer(self.node, answer, at));
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
            contain(|| sink.handle_answer(self.node, Answer::Failed(NodeFailure::ShutDown), None));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Notes who has answered what.
    #[derive(Default)]
    struct Votes(Mutex<Vec<String>>);

    impl VoteSink for Votes {
        fn handle_answer(&self, node: NodeId, answer: Answer, _: Option<Time>) {
            self.0.lock().expect("not poisoned").push(format!("{node:?} {answer:?}"));
        }
    }

    #[test]
    fn a_ballot_that_is_dropped_has_failed_and_each_votes_once() {
        let votes = Arc::<Votes>::default();
        let ballot = |node| Ballot::new(votes.clone(), NodeId::new(node));
        drop(ballot(0));
        ballot(1).cast(Answer::Failed(NodeFailure::ShutDown));
        ballot(2).discard();
        let votes = votes.0.lock().expect("not poisoned");
        assert_eq!(*votes, ["n0 Failed(ShutDown)", "n1 Failed(ShutDown)"]);
    }
}
