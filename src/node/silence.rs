//! What a node's task does while its node is silent.

use super::connection::Link;
use super::shared::NodeState;
use super::shield::shield;
use super::task::{MAX_UNDER_WAY, NodeTask};
use crate::time::clock;
use crate::wire::NodeFailure;
use futures::future::BoxFuture;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::yield_now;
use tokio::time::Instant;

/// A connection without traffic is tried this often, so that one that died in silence is replaced
/// before somebody needs it, and a clock that steps is seen.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// A node that leaves a command without an answer this many node timeouts, but at least
/// [`LEAST_PATIENCE`], gets a new connection.
const PATIENCE: u32 = 10;
const LEAST_PATIENCE: Duration = Duration::from_secs(1);

/// Where a quorum is silent, it is the network, or we: after so many node timeouts, but at least
/// [`LEAST_TRUST`], a second connection is tried beside the first.
const TRUST: u32 = 3;
const LEAST_TRUST: Duration = Duration::from_millis(150);

/// A second connection, beside one that is silent.
pub(super) enum Spare {
    NotDue,
    Making(BoxFuture<'static, Result<Link, NodeFailure>>),
    /// It could not be made, or there was no reason for it.
    None,
}

impl Spare {
    /// Ready when one is made, or could not be.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Link, NodeFailure>> {
        match self {
            Self::Making(made) => made.as_mut().poll(cx),
            Self::NotDue | Self::None => Poll::Pending,
        }
    }
}

impl NodeTask {
    /// Notes whether the node owes an answer for longer than the node timeout.
    pub(super) fn set_stalled(&mut self, is_stalled: bool) {
        self.is_stalled = is_stalled;
        self.links.note_silence(self.node.id, is_stalled);
        if !is_stalled {
            self.spare = Spare::NotDue;
        }
    }

    /// When something has to be done though nothing happens.
    pub(super) fn due(&mut self) -> Instant {
        let awake_since = self.awake_since;
        let silence = match (self.is_stalled, &self.spare) {
            (false, _) => self.node.timings.answer,
            (true, Spare::NotDue) => self.trust(),
            (true, _) => self.patience(),
        };
        let heartbeat = self.last_traffic + HEARTBEAT;
        let reply = match self.link().oldest() {
            Some(oldest) => oldest.max(awake_since) + silence,
            None => heartbeat,
        };
        // While a reply is overdue, or no pipeline has room, nothing owed can be written.
        let blocked = self.is_stalled || self.link().under_way() >= MAX_UNDER_WAY;
        let owed = if blocked { None } else { self.owed.due() };
        owed.map_or(reply, |owed| owed.min(reply))
    }

    fn patience(&self) -> Duration {
        (self.node.timings.answer * PATIENCE).max(LEAST_PATIENCE)
    }

    fn trust(&self) -> Duration {
        (self.node.timings.answer * TRUST).max(LEAST_TRUST).min(self.patience())
    }

    pub(super) async fn handle_alarm(&mut self) -> Result<(), NodeFailure> {
        let now = Instant::now();
        let late = now.saturating_duration_since(self.alarm.deadline());
        if late > self.node.timings.answer / 2 {
            // This process was stopped or starved; replies may be waiting to be read.
            self.awake_since = now;
        }
        let awake_since = self.awake_since;
        let idle = now.saturating_duration_since(self.last_traffic);
        match self.link().oldest() {
            Some(oldest) => {
                let silence = now.saturating_duration_since(oldest.max(awake_since));
                let is_new = silence >= self.node.timings.answer && !self.is_stalled;
                if is_new && !std::mem::replace(&mut self.is_looking_again, true) {
                    self.let_others_run(now).await;
                } else {
                    self.handle_silence(silence)?;
                }
            }
            None if idle >= HEARTBEAT => {
                self.last_traffic = now;
                let now = clock::now();
                self.link().write(redis::Pipeline::new(), Vec::new(), Some(now)).await;
            }
            None => {}
        }
        Ok(())
    }

    /// Tens of thousands of tasks may run, and the one that reads our socket does not get to it. So a
    /// node is said to hang only after it could have; and while that takes long, it is we who are slow.
    async fn let_others_run(&mut self, now: Instant) {
        yield_now().await;
        if now.elapsed() > self.node.timings.answer / 8 {
            self.awake_since = Instant::now();
            self.is_looking_again = false;
        }
    }

    fn handle_silence(&mut self, silence: Duration) -> Result<(), NodeFailure> {
        if silence >= self.patience() {
            return Err(NodeFailure::Stalled(silence));
        }
        if silence >= self.node.timings.answer && !self.is_stalled {
            self.set_stalled(true);
            // What hangs there can run at any time, also after its ttl.
            let id = self.node.id;
            self.link().unanswered().for_each(|order| order.note_in_doubt(id));
            self.note_state(NodeState::Stalled);
        }
        let is_due = self.is_stalled && silence >= self.trust();
        if is_due && matches!(self.spare, Spare::NotDue) {
            self.spare =
                if self.links.is_quorum_silent() { self.make_spare() } else { Spare::None };
        }
        Ok(())
    }

    fn make_spare(&self) -> Spare {
        let node = self.node.clone();
        Spare::Making(Box::pin(async move {
            let panicked = |why: String| NodeFailure::Unreachable(why.into());
            shield(Link::establish(&node), panicked).await
        }))
    }

    /// A second connection was made, or could not be. Its set-up was answered while the first one is
    /// silent, so it takes the place of that one. What the first may still deliver is ended before
    /// anything is written (I8), as with any connection that breaks.
    pub(super) fn handle_spare(&mut self, made: Result<Link, NodeFailure>) {
        self.spare = Spare::None;
        let Ok(link) = made else { return };
        let oldest = self.link().oldest();
        if let Some(oldest) = oldest.filter(|_| self.is_stalled) {
            self.part(&NodeFailure::Stalled(oldest.elapsed()));
            self.take_on(link);
            self.begin();
        }
    }
}
