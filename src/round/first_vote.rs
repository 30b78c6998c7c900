//! The vote of the one node that an attempt asks before all others.

use super::tally::Tally;
use crate::node::{Ballot, Nodes, QueuedCommand, VoteSink, sleep_until};
use crate::protocol::{NodeId, Time};
use crate::sync::{contain, lock};
use crate::wire::Answer;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot::{Sender, channel};

/// Counts the first vote of a round, and wakes the task that waits for it.
pub(crate) struct FirstVote {
    tally: Arc<Tally>,
    waits: Mutex<Option<Sender<()>>>,
}

impl FirstVote {
    /// Sends `node` its command. True if it has granted by `close_at`.
    pub(crate) async fn ask(
        tally: &Arc<Tally>,
        nodes: &Nodes,
        node: NodeId,
        close_at: Time,
        command: impl FnOnce(Ballot) -> QueuedCommand,
    ) -> bool {
        let (sender, voted) = channel();
        let vote = Arc::new(Self { tally: tally.clone(), waits: Mutex::new(Some(sender)) });
        nodes.send(node, command(Ballot::new(vote, node)));
        tokio::select! {
            biased;
            _ = voted => tally.has_granted(node),
            () = sleep_until(nodes, close_at) => false,
        }
    }
}

impl VoteSink for FirstVote {
    fn handle_answer(&self, node: NodeId, answer: Answer, at: Option<Time>) {
        self.tally.handle_answer(node, answer, at);
        let sender = lock(&self.waits).take();
        // The waiting task may be gone; and a node's task wakes it, which others need.
        contain(|| {
            if let Some(sender) = sender {
                // An error means that the waiting task is gone.
                let _ = sender.send(());
            }
        });
    }
}
