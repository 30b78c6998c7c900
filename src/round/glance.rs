//! One node is asked whether a lock is held.
//!
//! That is no round: it decides nothing, and sets nothing.

use super::asked::Asked;
use crate::node::{Ballot, Claim, Nodes, QueuedCommand, VoteSink, sleep_until};
use crate::protocol::{NodeId, Time};
use crate::sync::{contain, lock};
use crate::wire::{Answer, Keys, Obstacle, Value};
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot::{Sender, channel};

/// When what stands at the only key of `keys` on `node` ends by itself, if the node tells when that changes before. `None` if
/// nothing stands there, if the node will not tell, or if it has not answered by `close_at`.
///
/// # Cancel safety
/// Nothing is left on the node, whenever the future is dropped.
pub(crate) async fn held_until(
    nodes: &Nodes,
    node: NodeId,
    keys: Keys,
    close_at: Time,
) -> Option<Time> {
    // It is written nowhere, and costs nothing when it was read ahead.
    let value = Value::plain(nodes.uuid(nodes.clock().now()));
    let claim = Arc::new(Claim::new(keys, value, nodes.names().count()));
    let mut asked = Asked::default();
    asked.note(claim.clone());
    let (sender, said) = channel();
    let listener = Listener(Mutex::new(Some(sender)));
    nodes.send(node, QueuedCommand::watch(claim, Ballot::new(Arc::new(listener), node)));
    tokio::select! {
        biased;
        answer = said => match answer {
            Ok(Answer::Denied(Obstacle { remaining: Some(remaining), is_watched: true, .. })) => {
                Some(nodes.clock().now().after(remaining.at_most()))
            }
            _ => None,
        },
        () = sleep_until(nodes, close_at) => None,
    }
}

/// Hands on what the node says.
struct Listener(Mutex<Option<Sender<Answer>>>);

impl VoteSink for Listener {
    fn handle_answer(&self, _: NodeId, answer: Answer, _: Option<Time>) {
        let sender = lock(&self.0).take();
        // Whoever waited may have gone; and it is woken by a node's task, which others need.
        contain(|| drop(sender.map(|sender| sender.send(answer))));
    }
}
