//! Handles a runtime shutdown: the client's connections end with their runtime, and the client continues on another
//! runtime.

use super::acquire::{Acquire, Stage};
use super::context::Context;
use super::node::{Link, Node};
use super::slots::AcquireId;
use super::state::Coordinator;
use super::timeout::Timeout;
use super::votes::Owner;
use crate::observe::event::AttemptOutcome;
use crate::protocol::{Goal, Time};
use crate::wire::NodeFailure;

impl Coordinator {
    pub(crate) fn has_work(&self) -> bool {
        let has_calls =
            self.acquires.iter().next().is_some() || self.rounds.iter().next().is_some();
        let has_releases = || self.nodes.iter().any(Node::has_releases);
        has_calls || self.leases.iter().next().is_some() || has_releases()
    }

    /// Returns true if fewer nodes than a quorum are connected, or if an unconnected node has pending releases.
    pub(crate) fn needs_connection(&self) -> bool {
        let connected = self.nodes.iter().filter(|node| node.is_connected()).count();
        let is_needed = |node: &Node| !node.is_connected() && node.has_releases();
        !self.cx.settings.quorum.reached(connected) || self.nodes.iter().any(is_needed)
    }

    /// Handles the end of the driver's runtime, which has also ended all connections. If `is_next` is true, another
    /// runtime follows: attempts restart, and commands wait for new connections. Otherwise, all commands fail.
    pub(crate) fn handle_runtime_end(&mut self, is_next: bool, now: Time) {
        if self.is_closed() {
            return;
        }
        if is_next {
            for id in self.acquires.ids() {
                self.restart_attempt(id, now);
            }
        }
        for node in self.nodes.iter_mut() {
            node.handle_runtime_end(is_next, now, &mut self.cx);
        }
        self.settle(now);
    }

    /// Restarts the current attempt, because the replies to its commands are lost.
    fn restart_attempt(&mut self, id: AcquireId, now: Time) {
        if self.acquires.get(id).and_then(Acquire::attempt).is_none() {
            return;
        }
        self.emit_attempt(id, AttemptOutcome::Abandoned, now);
        let Some(acquire) = self.acquires.get_mut(id) else { return };
        let stage = std::mem::replace(&mut acquire.stage, Stage::Queued);
        let Stage::Attempting(attempt) = stage else { return };
        if let Some(rotation) = &mut acquire.rotation {
            rotation.handle_failure();
            rotation.end();
        }
        self.abandon_attempt(&attempt, now);
        self.end_attempt();
        self.forget_round(Some(attempt.round));
        self.forget_round(attempt.confirmation);
        self.ready.push_back(id);
    }

    /// Handles the start of a runtime that replaces another one. Restarts the node timeout of each unfinished release,
    /// extension and status request, because the client must first open new connections.
    pub(crate) fn handle_new_runtime(&mut self, now: Time) {
        let timeout = now.after(self.cx.settings.node_timeout);
        for call in self.rounds.ids() {
            let Some(votes) = self.rounds.get_mut(call) else { continue };
            if votes.round().outcome().is_some() {
                continue;
            }
            let limit = match (votes.owner, votes.round().goal()) {
                (Owner::Release | Owner::Status, _) => Time::END,
                (Owner::Extension { .. }, Goal::Extend { current, .. }) => current,
                _ => continue,
            };
            let close_at = votes.close_at.max(timeout.min(limit));
            votes.close_at = close_at;
            self.set_timeout(close_at, Timeout::Round(call));
        }
    }
}

impl Node {
    /// Removes the node's connections, which were closed with their runtime. Does not count as a failure of the node.
    fn handle_runtime_end(&mut self, is_next: bool, now: Time, cx: &mut Context) {
        self.wants_second = false;
        if let Some(second) = self.second_handshake.take() {
            cx.closed.push_back(second.id);
        }
        if let Link::Connecting { handshake, .. } = &self.link {
            cx.closed.push_back(handshake.id);
            self.link = Link::Disconnected { why: None };
        }
        self.lose_connection(&NodeFailure::ShutDown, now, cx);
        self.is_silent = false;
        if !is_next && let Link::Disconnected { why } = &mut self.link {
            *why = Some(NodeFailure::ShutDown);
        }
        self.refuse_all(now, cx);
        self.handle_state(now, cx);
    }
}
