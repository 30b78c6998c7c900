//! A node's task: it carries bytes, and wakes.
//!
//! It writes what waits and reads what comes, sets alarms and sleeps, makes connections and hands over
//! what it leaves. It decides nothing about that: whether a node is alive, when to try again, what is owed
//! and what a broken connection may still deliver are asked of the rules in
//! [`protocol`](crate::protocol), which are told what happened and when.
//!
//! The task is [disconnected](Disconnected) or [connected](Connected). Either way it has its
//! [backlog](Backlog) with it.

use super::backlog::Backlog;
use super::connected::Connected;
use super::connection::Link;
use super::inlet::Inlet;
use super::links::Links;
use super::queued_command::QueuedCommand;
use super::reconnect::Disconnected;
use super::shared::NodeShared;
use super::shield::shield;
use crate::protocol::{ConnectionLoss, LossCause, Reconnect};
use crate::wire::NodeFailure;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedReceiver;

/// Whatever happens to the task, also if its runtime drops it, `Drop` hands what is still owed to others.
pub(super) struct NodeTask {
    backlog: Backlog,
    inlet: Inlet,
    reconnect: Reconnect,
    state: State,
}

enum State {
    Disconnected(Disconnected),
    Connected(Box<Connected>),
}

impl NodeTask {
    pub(super) fn new(
        node: Arc<NodeShared>,
        links: Arc<Links>,
        mailbox: UnboundedReceiver<QueuedCommand>,
    ) -> Self {
        Self {
            reconnect: Reconnect::new(),
            inlet: Inlet::new(&node, mailbox),
            backlog: Backlog::new(node, links),
            state: State::Disconnected(Disconnected::default()),
        }
    }

    /// Serves the node until all handles are gone and nothing is owed any more.
    pub(super) async fn run(mut self) {
        let panicked = |why: String| NodeFailure::Disconnected(why.into());
        let mut broken = None;
        while let Err(failure) = shield(self.serve(&mut broken), panicked).await {
            broken = Some(failure);
        }
    }

    /// Sees to a connection that broke, if one did, and serves the node; ends when all is done, or with why a
    /// connection broke.
    async fn serve(&mut self, broken: &mut Option<NodeFailure>) -> Result<(), NodeFailure> {
        if let Some(why) = broken.take() {
            self.handle_break(why);
        }
        loop {
            let Self { backlog, inlet, reconnect, state } = self;
            let made = match state {
                State::Disconnected(it) => it.connect(backlog, inlet, reconnect).await,
                State::Connected(it) => it.serve(backlog, inlet, reconnect).await?,
            };
            let Some(link) = made else { return Ok(()) };
            self.take_on(link);
        }
    }

    /// A connection was made: it takes the place of one that hangs, if there is one.
    fn take_on(&mut self, link: Link) {
        let node = self.backlog.node.clone();
        let now = node.moment();
        let mut replaced = None;
        if let State::Connected(old) = &mut self.state {
            let silence = old.line.silence(now);
            let why = NodeFailure::Stalled(silence);
            self.reconnect.handle_loss(LossCause::Hung(silence), now.timer, node.random());
            self.backlog.handle_loss(&mut old.line, true, &why);
            replaced = Some(why);
        }
        node.handle_set_up(&link.peer);
        node.set_info(link.peer.info.clone());
        let reads_clock = link.peer.reading.is_some();
        self.reconnect.handle_connected(now.timer);
        self.state = State::Connected(Box::new(Connected::new(link, &self.backlog)));
        if replaced.is_some() {
            node.emit_closed(replaced.as_ref());
        }
        node.emit_opened(reads_clock);
        self.backlog.handle_recovery(now.timer);
        // What happened meanwhile was not told.
        node.tell(None);
    }

    /// The connection broke. One that had lasted is replaced at once, and commands wait for that; a
    /// node that hung, refused all writes, or dropped us at once, is down.
    fn handle_break(&mut self, why: NodeFailure) {
        // Before anything that could panic: no connection is seen to twice, or replaced without a pause.
        let none = State::Disconnected(Disconnected::default());
        let mut old = std::mem::replace(&mut self.state, none);
        let cause = match &why {
            NodeFailure::Stalled(silence) => LossCause::Hung(*silence),
            why if why.refuses_every_write() => LossCause::Refused,
            // A peer that sends malformed replies would do so again: the next connection is made after a pause.
            NodeFailure::Unexpected(_) => LossCause::Refused,
            _ => LossCause::Closed,
        };
        let (now, random) = (self.backlog.node.timer.now(), self.backlog.node.random());
        let loss = self.reconnect.handle_loss(cause, now, random);
        if let State::Connected(connected) = &mut old {
            self.backlog.handle_loss(&mut connected.line, true, &why);
            self.backlog.node.emit_closed(Some(&why));
        }
        self.backlog.note_silence(matches!(cause, LossCause::Hung(_)));
        self.state = State::Disconnected(match loss {
            ConnectionLoss::Blip => Disconnected::for_a_moment(&self.backlog),
            ConnectionLoss::Outage => Disconnected::down(why, &self.backlog),
        });
    }
}

impl Drop for NodeTask {
    /// Runs at the end of the task, also when a runtime is shut down under it.
    fn drop(&mut self) {
        self.backlog.note_silence(false);
        if let State::Connected(connected) = &mut self.state {
            let line = &mut connected.line;
            let may_deliver = !line.has_nothing_unanswered();
            self.backlog.handle_loss(line, may_deliver, &NodeFailure::ShutDown);
            let is_done = self.backlog.is_over();
            self.backlog.node.emit_closed(Some(&NodeFailure::ShutDown).filter(|_| !is_done));
            self.state = State::Disconnected(Disconnected::default());
        }
        self.backlog.hand_over(&mut self.inlet);
    }
}

#[cfg(test)]
#[path = "task_tests.rs"]
mod tests;
