//! How a node's task gets its connection, and what it says while it has none.

use super::connection::Link;
use super::shared::NodeState;
use super::shield::shield;
use super::task::{MAX_ORDERS, NodeTask};
use crate::time::clock;
use crate::wire::NodeFailure;
use rand::random_range;
use std::future::poll_fn;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Between two tries to connect: doubling from the first to the last, drawn from the upper half, so
/// that a node that comes back is found within a second and is not met by all clients at once.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// So many orders may wait for the first connection before those that are void are looked for.
const CROWD: usize = 1 << 12;

/// When to try to connect.
#[derive(Default)]
pub(super) struct Backoff {
    tries: u32,
    connected_at: Option<Instant>,
}

impl Backoff {
    /// The pause after a try that failed, or after a connection that did not last.
    fn next_pause(&mut self) -> Duration {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.tries.min(16)).min(LAST_PAUSE);
        self.tries += 1;
        random_range(pause / 2..=pause)
    }

    /// True if the connection that was just lost had lasted: then a new one may be made at once.
    fn handle_loss(&mut self, at: Instant) -> bool {
        let has_lasted = self.connected_at.take().is_some_and(|since| at - since > LAST_PAUSE);
        if has_lasted {
            self.tries = 0;
        }
        has_lasted
    }
}

impl NodeTask {
    /// Makes a connection, however long it takes. Meanwhile orders are answered: they wait for the
    /// first try, and are refused between tries. False when there is nobody left to connect for.
    pub(super) async fn connect(&mut self) -> bool {
        let mut next_try = Instant::now();
        if self.down.is_some() {
            next_try += self.backoff.next_pause();
        }
        loop {
            if !self.wait(sleep_until(next_try)).await {
                return false;
            }
            let node = self.node.clone();
            let mut made = Err(NodeFailure::ShutDown);
            let establish = shield(Box::pin(Link::establish(&node)), |why| {
                NodeFailure::Unreachable(why.into())
            });
            let attempt = async { made = establish.await };
            if !self.wait(attempt).await {
                return false;
            }
            match made {
                Ok(link) => {
                    self.take_on(link);
                    return true;
                }
                Err(failure) => {
                    self.node.guard.handle_unreachable(self.node.id, clock::now());
                    self.handle_refusal(failure);
                }
            }
            next_try = Instant::now() + self.backoff.next_pause();
        }
    }

    /// Waits for `until` and answers orders meanwhile; false if all is done before.
    async fn wait(&mut self, until: impl Future<Output = ()>) -> bool {
        tokio::pin!(until);
        self.owed.prune(clock::now(), self.is_closed);
        let mut crowded = CROWD;
        self.node.handover.prune(self.node.id, clock::now());
        loop {
            if self.is_closed {
                // No further task will be started.
                self.node.handover.take_all().into_iter().for_each(|order| self.owed.keep(order));
            }
            if let Some(failure) = self.down.clone() {
                for order in std::mem::take(&mut self.inbox) {
                    self.refuse(order, &failure);
                }
            }
            self.is_ended = self.node.handover.is_ended();
            let is_over = self.is_closed || self.is_ended;
            if is_over && self.inbox.is_empty() && self.owed.is_empty() {
                return false;
            }
            tokio::select! {
                () = &mut until => return true,
                () = poll_fn(|cx| self.node.handover.poll_end(&self.bell, self.is_ended, cx)) => {}
                received = self.mailbox.recv_many(&mut self.inbox, MAX_ORDERS), if !self.is_closed => {
                    self.is_closed = received == 0;
                    if self.inbox.len() >= crowded {
                        self.drop_void();
                        crowded = CROWD.max(2 * self.inbox.len());
                    }
                }
            }
        }
    }

    /// Answers what waits for the first connection and has no use any more (I12): rounds that are
    /// over, and their releases. What is left belongs to rounds under way and to leases.
    fn drop_void(&mut self) {
        let now = clock::now();
        for order in std::mem::take(&mut self.inbox) {
            if order.is_void(self.node.id, now) {
                order.answer_void();
            } else {
                self.inbox.push(order);
            }
        }
    }

    pub(super) fn take_on(&mut self, link: Link) {
        self.node.handle_set_up(&link);
        self.node.set_info(link.info.clone());
        self.note_state(NodeState::Up);
        self.owed.recover();
        self.down = None;
        self.backoff.connected_at = Some(Instant::now());
        self.link = Some(link);
        // What happened meanwhile was not told.
        self.node.tell(None);
    }

    fn handle_refusal(&mut self, failure: NodeFailure) {
        self.note_state(NodeState::Down(failure.clone()));
        self.down = Some(failure);
    }

    /// A connection was lost. One that had lasted is replaced at once, and orders wait for that; a
    /// node that hung, or dropped us at once, is down.
    pub(super) fn handle_loss(&mut self, failure: &NodeFailure) {
        let is_hung = matches!(failure, NodeFailure::Stalled(_));
        if self.backoff.handle_loss(Instant::now()) && !is_hung {
            self.note_state(NodeState::Connecting);
        } else {
            self.handle_refusal(failure.clone());
        }
    }
}
