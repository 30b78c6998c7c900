//! Connections of a node: opening, set-up, loss and replacement.

use super::connection::Connection;
use super::context::{ConnectionId, Context, NodeOutput};
use super::handshake::{Handshake, Peer, Step};
use super::node::{Link, Node};
use crate::observe::event::{Event, NodeHealth};
use crate::observe::{EventLevel, NodeState};
use crate::protocol::{Broken, ConnectionLoss, LossCause, Time};
use crate::wire::NodeFailure;
use redis::{RedisConnectionInfo, RedisError};
use std::io;
use std::sync::Arc;

impl Node {
    pub(super) fn poll_connect(&mut self, now: Time, cx: &mut Context) -> Option<ConnectionId> {
        let is_second = std::mem::take(&mut self.wants_second);
        let why = match &mut self.link {
            Link::Connected(_) if is_second => None,
            Link::Disconnected { why } if now >= self.reconnect.next_try() => Some(why.take()),
            _ => return None,
        };
        let id = cx.next_connection(self.id);
        let handshake = Handshake::new(id, &cx.settings, now);
        match why {
            None => self.second_handshake = Some(handshake),
            Some(why) => self.link = Link::Connecting { handshake: Box::new(handshake), why },
        }
        self.prune(now, cx);
        Some(id)
    }

    pub(super) fn handshakes(&self) -> impl Iterator<Item = &Handshake> {
        let first = match &self.link {
            Link::Connecting { handshake, .. } => Some(&**handshake),
            Link::Disconnected { .. } | Link::Connected(_) => None,
        };
        first.into_iter().chain(&self.second_handshake)
    }

    fn handshake_mut(&mut self, id: ConnectionId) -> Option<&mut Handshake> {
        let first = match &mut self.link {
            Link::Connecting { handshake, .. } => Some(&mut **handshake),
            Link::Disconnected { .. } | Link::Connected(_) => None,
        };
        first.into_iter().chain(&mut self.second_handshake).find(|handshake| handshake.id == id)
    }

    fn established_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connection_mut().filter(|connection| connection.id == id)
    }

    /// Removes and returns the handshake of connection `id`. The flag is true for a second connection, which the client
    /// opens while the first connection does not reply.
    pub(super) fn take_handshake(&mut self, id: ConnectionId) -> Option<(Handshake, bool)> {
        if self.second_handshake.as_ref().is_some_and(|second| second.id == id) {
            return self.second_handshake.take().map(|second| (second, true));
        }
        match std::mem::replace(&mut self.link, Link::Disconnected { why: None }) {
            Link::Connecting { handshake, why } if handshake.id == id => {
                self.link = Link::Disconnected { why };
                Some((*handshake, false))
            }
            link => {
                self.link = link;
                None
            }
        }
    }

    pub(super) fn is_open(&self, id: ConnectionId) -> bool {
        self.connection().is_some_and(|connection| connection.id == id)
            || self.handshakes().any(|handshake| handshake.id == id)
    }

    pub(super) fn wants_connection(&self, now: Time) -> bool {
        match &self.link {
            Link::Connected(_) => self.wants_second,
            Link::Connecting { .. } => false,
            Link::Disconnected { .. } => now >= self.reconnect.next_try(),
        }
    }

    pub(super) fn wants_to_write(&self, now: Time) -> bool {
        let connection = self.connection();
        connection.is_some_and(|it| !it.to_send().is_empty() || self.can_write_commands(now))
            || self.handshakes().any(|handshake| !handshake.to_send().is_empty())
    }

    pub(super) fn to_send(&self, id: ConnectionId) -> &[u8] {
        if let Some(connection) = self.connection().filter(|connection| connection.id == id) {
            return connection.to_send();
        }
        let handshake = self.handshakes().find(|handshake| handshake.id == id);
        handshake.map_or(&[], Handshake::to_send)
    }

    /// Records that the driver has copied the first `count` bytes of [`to_send`](Self::to_send) to its write buffer.
    pub(super) fn handle_sent(&mut self, id: ConnectionId, count: usize) {
        if let Some(connection) = self.established_mut(id) {
            connection.handle_sent(count);
        } else if let Some(handshake) = self.handshake_mut(id) {
            handshake.handle_sent(count);
        }
    }

    pub(super) fn handle_unsent(&mut self, id: ConnectionId, count: usize) {
        if let Some(connection) = self.established_mut(id) {
            connection.conversation().handle_unsent(count);
        }
    }

    pub(super) fn handle_connected(
        &mut self,
        id: ConnectionId,
        login: &RedisConnectionInfo,
        now: Time,
    ) {
        if let Some(handshake) = self.handshake_mut(id) {
            handshake.handle_connected(login, now);
        }
    }

    pub(super) fn handle_connect_failed(
        &mut self,
        id: ConnectionId,
        failure: NodeFailure,
        now: Time,
        cx: &mut Context,
    ) {
        if let Some((_, is_second)) = self.take_handshake(id) {
            self.handle_unreachable(is_second, failure, now, cx);
        }
    }

    /// Handles a failed attempt to connect. If the failed connection was a second one, the node keeps its first
    /// connection and its state.
    pub(super) fn handle_unreachable(
        &mut self,
        is_second: bool,
        failure: NodeFailure,
        now: Time,
        cx: &mut Context,
    ) {
        if is_second {
            return;
        }
        cx.quarantine.handle_unreachable(self.id, now);
        let reason = failure.clone();
        let node = self.id;
        cx.emit(EventLevel::Debug, |cx| Event::ConnectFailed {
            node: cx.name(node).clone(),
            reason,
        });
        let random = cx.random.number();
        self.reconnect.handle_unreachable(failure.refuses_every_write(), now, random);
        self.was_tried = true;
        self.link = Link::Disconnected { why: Some(failure) };
        self.refuse_all(now, cx);
        self.prune(now, cx);
        self.handle_state(now, cx);
    }

    pub(super) fn handle_bytes(
        &mut self,
        id: ConnectionId,
        bytes: &[u8],
        now: Time,
        cx: &mut Context,
    ) {
        if let Some(connection) = self.established_mut(id) {
            connection.conversation().handle_bytes(bytes);
            let result = self.handle_replies(now, cx);
            self.handle_pushes(now, cx);
            if let Err(failure) = result {
                self.handle_break(failure, now, cx);
            }
            return;
        }
        let Some(handshake) = self.handshake_mut(id) else { return };
        let step = handshake.handle_bytes(bytes, now);
        match step {
            Ok(Step::Wait) => {}
            Ok(Step::SetUp(peer)) => self.handle_set_up(id, peer, now, cx),
            Ok(Step::Killed { peer, broken, are_killed }) => {
                self.handle_kill_replies(&peer, &broken, are_killed, now);
                self.establish(id, peer, now, cx);
            }
            Err(failure) => self.end_handshake(id, failure, now, cx),
        }
    }

    fn end_handshake(
        &mut self,
        id: ConnectionId,
        failure: NodeFailure,
        now: Time,
        cx: &mut Context,
    ) {
        cx.closed.push_back(id);
        self.handle_connect_failed(id, failure, now, cx);
    }

    /// Handles the server's replies to the set-up of connection `id`. If earlier connections broke, the server must
    /// kill them before the new connection is used.
    fn handle_set_up(&mut self, id: ConnectionId, peer: Peer, now: Time, cx: &mut Context) {
        let recorded = peer.info.run_id.as_ref().map(|run_id| cx.record_run(self.id, run_id));
        if let Some(Err(failure)) = recorded {
            return self.end_handshake(id, failure, now, cx);
        }
        // The silent connection may still deliver commands, so it is closed before the client writes a command over the
        // second connection.
        if let Some(second) = self.second_handshake.take_if(|second| second.id == id) {
            self.replace_connection(second, now, cx);
        }
        let broken = self.stale.broken().to_vec();
        match self.handshake_mut(id) {
            Some(handshake) if !broken.is_empty() => handshake.kill(peer, broken),
            _ => self.establish(id, peer, now, cx),
        }
    }

    fn replace_connection(&mut self, second: Handshake, now: Time, cx: &mut Context) {
        let Some(connection) = self.connection() else { return };
        let failure = NodeFailure::Stalled(connection.silence(now));
        let (cause, random) = (LossCause::Hung(connection.silence(now)), cx.random.number());
        self.reconnect.handle_loss(cause, now, random);
        self.lose_connection(&failure, now, cx);
        self.link = Link::Connecting { handshake: Box::new(second), why: Some(failure) };
        self.refuse_all(now, cx);
    }

    /// Records the replies to `CLIENT KILL`, which a new connection to `peer` sent for the `broken` connections.
    /// `are_killed` is false if the server refused one of the requests.
    fn handle_kill_replies(
        &mut self,
        peer: &Peer,
        broken: &[Broken<Arc<str>>],
        are_killed: bool,
        now: Time,
    ) {
        self.stale.handle_killed(broken, peer.info.run_id.as_ref(), are_killed, now);
    }

    fn establish(&mut self, id: ConnectionId, peer: Peer, now: Time, cx: &mut Context) {
        let Some((handshake, _)) = self.take_handshake(id) else { return };
        let reads_clock = peer.reading.is_some();
        self.handle_reading(peer.reading, now, cx);
        cx.handle_set_up(self.id, &peer.info, peer.asked, now);
        self.info = peer.info.clone();
        self.reconnect.handle_connected(now);
        let timeout = cx.settings.node_timeout;
        let connection = Connection::new(id, handshake.finish(), peer, timeout, now);
        self.link = Link::Connected(Box::new(connection));
        self.was_tried = true;
        self.connections += 1;
        let (node, connections) = (self.id, self.connections);
        let level = if reads_clock { EventLevel::Debug } else { EventLevel::Warn };
        cx.emit(level, |cx| Event::ConnectionOpened {
            node: cx.name(node).clone(),
            reads_clock,
            connections,
        });
        self.handle_recovery(now, cx);
        // The server could not push changes while the client was disconnected, so any key may have changed.
        cx.outputs.push_back(NodeOutput::Changed { node, key: None });
    }

    /// Marks the node as reachable again. The client can then resend pending commands immediately.
    pub(super) fn handle_recovery(&mut self, now: Time, cx: &mut Context) {
        self.repeat_backoff.recover(now);
        self.is_silent = false;
        self.handle_state(now, cx);
    }

    pub(super) fn handle_closed(
        &mut self,
        id: ConnectionId,
        error: &RedisError,
        now: Time,
        cx: &mut Context,
    ) {
        if let Some(connection) = self.established_mut(id) {
            let last_error = connection.conversation().last_error();
            let failure = NodeFailure::disconnected(error, last_error.as_deref());
            return self.handle_break(failure, now, cx);
        }
        let Some(handshake) = self.handshake_mut(id) else { return };
        let mut failure = handshake.failure(error);
        if error.is_connection_dropped() && handshake.is_unanswered() {
            let hint = cx.settings.nodes[self.id.index()].hint_if_closed;
            let text = format!("closed by the server without a reply to HELLO 3{hint}");
            failure = NodeFailure::unreachable(
                &io::Error::new(io::ErrorKind::UnexpectedEof, text).into(),
            );
        }
        self.handle_connect_failed(id, failure, now, cx);
    }

    /// Handles the loss of an established connection. If the connection had been stable, the client replaces it
    /// immediately, and commands wait for the new connection. If the node has stalled, refuses all writes, or closes
    /// connections soon after they open, the node counts as down.
    pub(super) fn handle_break(&mut self, failure: NodeFailure, now: Time, cx: &mut Context) {
        let cause = match &failure {
            NodeFailure::Stalled(silence) => LossCause::Hung(*silence),
            failure if failure.refuses_every_write() => LossCause::Refused,
            // A server that sends malformed replies would send more of them, so the client reconnects after a pause.
            NodeFailure::Unexpected(_) => LossCause::Refused,
            _ => LossCause::Closed,
        };
        let loss = self.reconnect.handle_loss(cause, now, cx.random.number());
        self.lose_connection(&failure, now, cx);
        self.is_silent = matches!(cause, LossCause::Hung(_));
        let why = (loss == ConnectionLoss::Outage).then_some(failure);
        // A second connection that is being set up replaces the broken connection.
        self.link = match self.second_handshake.take() {
            Some(second) => Link::Connecting { handshake: Box::new(second), why },
            None => Link::Disconnected { why },
        };
        self.refuse_all(now, cx);
        self.handle_state(now, cx);
    }

    /// Removes the established connection. The server may still execute its unanswered commands.
    pub(super) fn lose_connection(&mut self, failure: &NodeFailure, now: Time, cx: &mut Context) {
        let link = std::mem::replace(&mut self.link, Link::Disconnected { why: None });
        let Link::Connected(mut connection) = link else { return };
        cx.closed.push_back(connection.id);
        cx.quarantine.handle_loss(self.id);
        self.stale.handle_broken(connection.peer.broken());
        self.handle_unanswered(connection.take_unanswered().into_iter(), failure, now, cx);
        self.emit_closed(Some(failure), cx);
        self.emit_pending(cx);
    }

    pub(super) fn close(&mut self, cx: &mut Context) {
        self.drop_waiting();
        if let Some(second) = self.second_handshake.take() {
            cx.closed.push_back(second.id);
        }
        match std::mem::replace(&mut self.link, Link::Disconnected { why: None }) {
            Link::Connected(connection) => {
                cx.closed.push_back(connection.id);
                self.emit_closed(None, cx);
            }
            Link::Connecting { handshake, .. } => cx.closed.push_back(handshake.id),
            Link::Disconnected { .. } => {}
        }
    }

    fn emit_closed(&mut self, reason: Option<&NodeFailure>, cx: &mut Context) {
        self.connections -= 1;
        let (node, connections) = (self.id, self.connections);
        cx.emit(EventLevel::Debug, |cx| Event::ConnectionClosed {
            node: cx.name(node).clone(),
            reason: reason.cloned(),
            connections,
        });
    }

    pub(super) fn emit_health(&self, now: Time, cx: &mut Context) {
        if !cx.wants(EventLevel::Warn) {
            return;
        }
        let (health, reason) = match self.state() {
            // The first connection, or the immediate replacement of a broken connection, is being set up.
            NodeState::Connecting => return,
            NodeState::Stalled => (NodeHealth::Stalled, None),
            NodeState::Down(failure) => (NodeHealth::Down, Some(failure)),
            NodeState::Up => match (cx.quarantine_failure(self.id, now), self.clock_failure(now)) {
                // A recently started node may turn out to belong to a new deployment.
                (Some(_), _) if !cx.quarantine.is_settled(now) => return,
                (Some(failure), _) => (NodeHealth::Quarantined, Some(failure)),
                (None, Some(failure)) => (NodeHealth::Suspect, Some(failure)),
                (None, None) => (NodeHealth::Counted, None),
            },
        };
        cx.emit_health(self.id, health, reason, now);
    }
}
