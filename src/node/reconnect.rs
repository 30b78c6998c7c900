//! How a node's task gets its connection, and what it says while it has none.

use super::backlog::{Backlog, MAX_COMMANDS};
use super::connection::Link;
use super::inlet::Inlet;
use super::shield::shield;
use crate::observe::NodeState;
use crate::protocol::Reconnect;
use crate::wire::NodeFailure;
use std::future::poll_fn;

/// So many commands may wait for the first connection before those that are void are looked for.
const CROWD: usize = 1 << 12;

/// There is no connection: it waits for the next try, or makes one.
#[derive(Default)]
pub(super) struct Disconnected {
    /// Why; `None` before the first connection and while a lost one is tried anew: commands wait for that.
    why: Option<NodeFailure>,
}

impl Disconnected {
    /// A connection was lost that had lasted: it is replaced at once.
    pub(super) fn for_a_moment(backlog: &Backlog) -> Self {
        backlog.note_state(NodeState::Connecting);
        Self { why: None }
    }

    /// The node is down.
    pub(super) fn down(why: NodeFailure, backlog: &Backlog) -> Self {
        backlog.note_state(NodeState::Down(why.clone()));
        Self { why: Some(why) }
    }

    /// Makes a connection, however long it takes. Meanwhile commands are answered: they wait for the
    /// first try, and are refused between tries. `None` when there is nobody left to connect for.
    pub(super) async fn connect(
        &mut self,
        backlog: &mut Backlog,
        inlet: &mut Inlet,
        reconnect: &mut Reconnect,
    ) -> Option<Link> {
        let node = backlog.node.clone();
        loop {
            let next_try = reconnect.next_try().max(node.timer.now());
            self.wait(node.timer.sleep_until(next_try), backlog, inlet).await?;
            let panicked = |why: String| NodeFailure::Unreachable(why.into());
            let attempt = shield(Box::pin(Link::establish(&node)), panicked);
            match self.wait(attempt, backlog, inlet).await? {
                Ok(link) => return Some(link),
                Err(failure) => {
                    node.guard.handle_unreachable(node.id, node.now());
                    node.emit_connect_failed(&failure);
                    let is_refused = failure.refuses_every_write();
                    *self = Self::down(failure, backlog);
                    reconnect.handle_unreachable(is_refused, node.timer.now(), node.random());
                }
            }
        }
    }

    /// Waits for `until` and answers commands meanwhile; `None` if all is done before.
    async fn wait<T>(
        &self,
        until: impl Future<Output = T>,
        backlog: &mut Backlog,
        Inlet { mailbox, bell }: &mut Inlet,
    ) -> Option<T> {
        tokio::pin!(until);
        backlog.prune();
        let mut crowded = CROWD;
        loop {
            backlog.keep_left();
            if let Some(why) = &self.why {
                backlog.refuse(why, backlog.node.moment());
            }
            if backlog.is_over() && backlog.inbox.is_empty() && backlog.owed.is_empty() {
                return None;
            }
            let Backlog { node, inbox, .. } = backlog;
            let is_ended = backlog.is_ended;
            tokio::select! {
                biased;
                done = &mut until => return Some(done),
                () = poll_fn(|cx| node.handover.poll_end(bell, is_ended, cx)) => {}
                received = mailbox.recv_many(inbox, MAX_COMMANDS), if !backlog.is_closed => {
                    backlog.is_closed = received == 0;
                    if backlog.inbox.len() >= crowded {
                        backlog.drop_void();
                        crowded = CROWD.max(2 * backlog.inbox.len());
                    }
                }
            }
        }
    }
}
