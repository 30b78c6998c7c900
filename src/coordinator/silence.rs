//! Timeouts of a node: connection set-ups that take too long, and commands without a reply.

use super::connection::Connection;
use super::context::{ConnectionId, Context, NodeOutput};
use super::handshake::Handshake;
use super::node::{Link, Node};
use crate::protocol::{Action, Time};
use crate::wire::NodeFailure;

impl Node {
    /// Returns the next time at which [`handle_timeout`](Self::handle_timeout) must be called, a connection can be
    /// opened, or pending commands can be sent again. Returns `None` if no such time is known. Ignores connections and
    /// commands that are already due.
    pub(super) fn next_timeout(&self, now: Time) -> Option<Time> {
        let connection = self.connection().map(Connection::next_timeout);
        let handshake = self.handshakes().map(Handshake::deadline).min();
        let connect =
            matches!(self.link, Link::Disconnected { .. }).then(|| self.reconnect.next_try());
        let later = [connect, self.next_repeat(now)].map(|at| at.filter(|at| *at > now));
        [connection, handshake].into_iter().chain(later).flatten().min()
    }

    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        is_quorum_silent: bool,
        was_read: bool,
        cx: &mut Context,
    ) {
        let late: Vec<_> = self
            .handshakes()
            .filter(|handshake| now >= handshake.deadline())
            .map(|handshake| handshake.id)
            .collect();
        for id in late {
            self.fail_set_up(id, now, cx);
        }
        while let Some(connection) = self.connection_mut() {
            match connection.handle_timeout(now, is_quorum_silent, was_read) {
                None | Some(Action::Yield) => break,
                Some(Action::Heartbeat) => connection.write_heartbeat(now),
                Some(Action::Stall) => self.handle_stall(now, cx),
                Some(Action::MakeSecond) => {
                    let silence = connection.silence(now);
                    self.wants_second = self.reconnect.may_make_second(silence, now);
                }
                Some(Action::Abandon(silence)) => {
                    self.handle_break(NodeFailure::Stalled(silence), now, cx);
                }
            }
        }
    }

    fn fail_set_up(&mut self, id: ConnectionId, now: Time, cx: &mut Context) {
        let Some((handshake, is_second)) = self.take_handshake(id) else { return };
        cx.closed.push_back(id);
        let hint = if handshake.is_partly_answered() {
            ": no reply to a command"
        } else {
            cx.settings.nodes[self.id.index()].hint_if_silent
        };
        let failure = NodeFailure::Unreachable(format!("timeout while connecting{hint}").into());
        self.handle_unreachable(is_second, failure, now, cx);
    }

    fn handle_stall(&mut self, now: Time, cx: &mut Context) {
        self.is_silent = true;
        // The node can execute the unanswered commands at any time, even after their TTL has passed.
        let unanswered = self.connection().into_iter().flat_map(Connection::unanswered);
        unanswered.for_each(|command| command.handle_in_doubt(self.id));
        self.refuse_all(now, cx);
        self.handle_state(now, cx);
    }

    /// Notifies the coordinator and the observers that the node's state may have changed.
    pub(super) fn handle_state(&mut self, now: Time, cx: &mut Context) {
        cx.outputs.push_back(NodeOutput::Connectivity);
        self.emit_health(now, cx);
    }
}
