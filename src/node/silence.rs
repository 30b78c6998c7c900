//! What a node's task does when its alarm rings: carries out what [`Liveness`](crate::protocol::Liveness)
//! says.

use super::backlog::Backlog;
use super::connected::{Connected, Establishing};
use super::connection::Link;
use super::shared::{NodeShared, NodeState};
use super::shield::shield;
use crate::protocol::{Action, Time};
use crate::wire::NodeFailure;
use std::sync::Arc;
use tokio::task::yield_now;

impl Connected {
    pub(super) async fn handle_alarm(&mut self, backlog: &Backlog) -> Result<(), NodeFailure> {
        let now = backlog.timer.now();
        self.liveness.handle_timeout(self.alarm_due, now);
        while let Some(action) = self.liveness.poll(now, backlog.links.is_quorum_silent()) {
            match action {
                Action::Beat => self.beat(backlog),
                Action::LetOthersRun => {
                    // What has come meanwhile is read before this is looked at again.
                    self.let_others_run(now, backlog).await;
                    return Ok(());
                }
                Action::Stall => self.stall(backlog),
                Action::MakeSecond => self.second = Some(establish(backlog.node.clone())),
                Action::GiveUp(silence) => return Err(NodeFailure::Stalled(silence)),
            }
        }
        Ok(())
    }

    /// Asks what time it is, and nothing else.
    fn beat(&mut self, backlog: &Backlog) {
        let at = backlog.timer.now();
        self.link.write(Vec::new(), Some(backlog.node.now()), at);
        self.liveness.handle_written(at);
    }

    async fn let_others_run(&mut self, since: Time, backlog: &Backlog) {
        yield_now().await;
        let now = backlog.timer.now();
        self.liveness.handle_others_ran(now.since(since), now);
    }

    fn stall(&self, backlog: &Backlog) {
        backlog.note_silence(true);
        // What hangs there can run at any time, also after its ttl.
        self.link.unanswered().for_each(|command| command.note_in_doubt(backlog.node.id));
        backlog.note_state(NodeState::Stalled);
    }
}

fn establish(node: Arc<NodeShared>) -> Establishing {
    Box::pin(async move {
        let panicked = |why: String| NodeFailure::Unreachable(why.into());
        shield(Link::establish(&node), panicked).await
    })
}
