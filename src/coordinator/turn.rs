//! The coordinator's interface for its driver: connections, bytes, timeouts, outputs and getters.

use super::closing::Closing;
use super::completion::Completion;
use super::context::ConnectionId;
use super::slots::LeaseId;
use super::state::{Coordinator, is_current, is_lease_current};
use super::timeout::Timeout;
use crate::observe::event::Event;
use crate::observe::{EventLevel, NodeState, VoteEligibility};
use crate::protocol::{LeaseStatus, NodeId, Time};
use crate::wire::{NodeFailure, ServerInfo};
use redis::{RedisConnectionInfo, RedisError};
use std::time::Duration;

/// Maximum number of timeouts of acquires and rounds that one call of [`Coordinator::handle_timeout`] handles.
const MAX_TIMEOUTS: usize = 64;

impl Coordinator {
    /// Returns the next connection to open. The driver must obtain the credentials, open the stream, and call
    /// [`handle_connected`](Self::handle_connected) or [`handle_connect_failed`](Self::handle_connect_failed).
    pub(crate) fn poll_connect(&mut self, now: Time) -> Option<ConnectionId> {
        if self.closing == Closing::Closed {
            return None;
        }
        let cx = &mut self.cx;
        let connection = self.nodes.iter_mut().find_map(|node| node.poll_connect(now, cx));
        self.settle(now);
        connection
    }

    pub(crate) fn is_open(&self, connection: ConnectionId) -> bool {
        self.nodes[connection.node].is_open(connection)
    }

    /// Returns true if the driver must now open connections or write bytes. Each call resets the state, so that the
    /// same reason is reported only once.
    pub(crate) fn poll_turn(&mut self, now: Time) -> bool {
        self.nodes.take_due(now) && self.closing != Closing::Closed
    }

    /// Returns true if commands were submitted since the last call. The driver must then call
    /// [`poll_transmit`](Self::poll_transmit) again for all connections, even if a connection had no bytes before.
    pub(crate) fn take_submitted(&mut self) -> bool {
        self.nodes.take_submitted()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closing == Closing::Closed
    }

    /// Returns true if a quorum is connected and the client knows which nodes' votes count.
    pub(crate) fn is_ready(&self, now: Time) -> bool {
        self.is_warm(now) && self.cx.settings.quorum.reached(self.connected().len())
    }

    pub(crate) fn node_timeout(&self) -> Duration {
        self.cx.settings.node_timeout
    }

    /// Returns the number of acquires that have no lease yet, and the number of attempts in progress.
    #[cfg_attr(not(feature = "test-util"), allow(dead_code))]
    pub(crate) fn acquires(&self) -> (usize, usize) {
        let waiting = self.acquires.iter().filter(|(_, acquire)| !acquire.is_delivered());
        (waiting.count(), self.attempts)
    }

    #[cfg_attr(not(feature = "test-util"), allow(dead_code))]
    pub(crate) fn confirmations(&self) -> u64 {
        self.confirmations
    }

    #[cfg_attr(not(feature = "test-util"), allow(dead_code))]
    pub(crate) fn waiter_checks(&self) -> u64 {
        self.queues.checks
    }

    pub(crate) fn holds(&self, key: &[u8], now: Time) -> bool {
        let lease = self.leases_by_key.get(key).and_then(|id| self.leases.get(*id));
        lease.is_some_and(|lease| matches!(lease.shared.status(now), LeaseStatus::Held { .. }))
    }

    /// Handles a connection that the driver has opened. `login` contains the credentials and the database.
    pub(crate) fn handle_connected(
        &mut self,
        connection: ConnectionId,
        login: &RedisConnectionInfo,
        now: Time,
    ) {
        self.nodes[connection.node].handle_connected(connection, login, now);
    }

    pub(crate) fn handle_connect_failed(
        &mut self,
        connection: ConnectionId,
        failure: NodeFailure,
        now: Time,
    ) {
        let node = &mut self.nodes[connection.node];
        node.handle_connect_failed(connection, failure, now, &mut self.cx);
        self.settle(now);
    }

    /// Handles `bytes` that the driver has read from `connection`. The driver must read the clock for `now` after it
    /// has read the bytes (I3).
    pub(crate) fn handle_bytes(&mut self, connection: ConnectionId, bytes: &[u8], now: Time) {
        self.nodes[connection.node].handle_bytes(connection, bytes, now, &mut self.cx);
        self.settle(now);
    }

    /// Records that more bytes had arrived on `connection` than the driver reads in one turn. A missing reply may be
    /// among the unread bytes, so the node is not declared stalled.
    pub(crate) fn handle_backlog(&mut self, connection: ConnectionId, now: Time) {
        let known = self.nodes[connection.node].connection_mut();
        if let Some(known) = known.filter(|known| known.id == connection) {
            known.handle_backlog(now);
        }
    }

    pub(crate) fn handle_closed(
        &mut self,
        connection: ConnectionId,
        error: &RedisError,
        now: Time,
    ) {
        self.nodes[connection.node].handle_closed(connection, error, now, &mut self.cx);
        self.settle(now);
    }

    /// Returns the bytes to write to `connection`, which may be empty. The driver must read the clock for `now` before
    /// it writes the bytes (I4).
    pub(crate) fn poll_transmit(&mut self, connection: ConnectionId, now: Time) -> &[u8] {
        let node = &mut self.nodes[connection.node];
        if node.connection().is_some_and(|known| known.id == connection) {
            node.write(now, &mut self.cx);
        }
        self.settle(now);
        self.nodes[connection.node].to_send(connection)
    }

    /// Records that the driver has copied the first `count` bytes of [`poll_transmit`](Self::poll_transmit) to its
    /// write buffer.
    pub(crate) fn handle_sent(&mut self, connection: ConnectionId, count: usize) {
        self.nodes[connection.node].handle_sent(connection, count);
    }

    /// Records that the last `count` bytes that the driver copied are still unwritten, because the stream did not
    /// accept them.
    pub(crate) fn handle_unsent(&mut self, connection: ConnectionId, count: usize) {
        self.nodes[connection.node].handle_unsent(connection, count);
    }

    /// Returns true if the driver must read `connection` before the next write, even if the runtime has not reported
    /// the connection as readable. The server may have closed the connection while this process was stopped, or may
    /// have replied while the runtime was blocked.
    ///
    /// Returns false if no command is waiting or unanswered.
    pub(crate) fn must_read_first(&self, connection: ConnectionId, now: Time) -> bool {
        let node = &self.nodes[connection.node];
        let known = node.connection().filter(|known| known.id == connection && known.is_quiet(now));
        known.is_some_and(|known| !known.is_idle() || node.wants_to_write(now))
    }

    /// Returns true if the driver should yield to other tasks before it writes to `connection`, because callers are
    /// likely to submit more commands for the same pipeline. `times` is the number of yields since the driver last read
    /// the connection.
    pub(crate) fn should_gather(&self, connection: ConnectionId, times: u32, now: Time) -> bool {
        let node = &self.nodes[connection.node];
        let known = node.connection().filter(|known| known.id == connection);
        known.is_some_and(|it| {
            node.can_write_commands(now) && it.should_gather(node.waiting(), times)
        })
    }

    pub(crate) fn poll_close(&mut self) -> Option<ConnectionId> {
        self.cx.closed.pop_front()
    }

    pub(crate) fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    pub(crate) fn poll_event(&mut self) -> Option<(EventLevel, Event)> {
        self.cx.events.pop_front()
    }

    pub(crate) fn poll_timeout(&mut self, now: Time) -> Option<Time> {
        let is_open = self.closing != Closing::Closed;
        let nodes = self.nodes.next_timeout(now).filter(|_| is_open);
        let Self { timers, lease_timers, acquires, leases, rounds, closing, .. } = self;
        let others = timers.next(|at, key| is_current(at, key, acquires, rounds, *closing));
        let lease = lease_timers.next(|at, id| is_lease_current(at, id, leases));
        [nodes, others, lease].into_iter().flatten().min()
    }

    /// Handles the timeouts that have passed at `now`: first all ends and renewals of leases, then at most
    /// [`MAX_TIMEOUTS`] other timeouts. The next call handles the remaining ones, so that the driver can notify the
    /// holders of ended leases in between.
    ///
    /// `was_read` is true if the driver has read all connections since the previous call. If `was_read` is false, no
    /// node is declared stalled.
    pub(crate) fn handle_timeout(&mut self, now: Time, was_read: bool) {
        while let Some(id) = self.next_lease_timeout(now) {
            if let Some(lease) = self.leases.get_mut(id) {
                lease.timeout = None;
            }
            self.step_lease(id, now);
        }
        let mut acquires = Vec::new();
        for _ in 0..MAX_TIMEOUTS {
            match self.next_timeout(now) {
                Some(Timeout::Round(round)) => self.close_due_round(round, now),
                Some(Timeout::Acquire(id)) => {
                    if let Some(acquire) = self.acquires.get_mut(id) {
                        acquire.timeout = None;
                    }
                    acquires.push(id);
                }
                Some(Timeout::Close) => {}
                None => break,
            }
        }
        if self.is_closing() {
            self.prune(now);
        }
        let silent = self.nodes.iter().filter(|node| node.is_silent).count();
        let is_quorum_silent = self.cx.settings.quorum.reached(silent);
        if self.closing != Closing::Closed {
            for node in self.nodes.iter_mut() {
                node.handle_timeout(now, is_quorum_silent, was_read, &mut self.cx);
            }
        }
        self.ready.extend(acquires);
        self.settle(now);
    }

    fn next_timeout(&mut self, now: Time) -> Option<Timeout> {
        let Self { timers, acquires, rounds, closing, .. } = self;
        timers.pop(now, |at, key| is_current(at, key, acquires, rounds, *closing))
    }

    fn next_lease_timeout(&mut self, now: Time) -> Option<LeaseId> {
        let Self { lease_timers, leases, .. } = self;
        lease_timers.pop(now, |at, id| is_lease_current(at, id, leases))
    }

    pub(super) fn set_timeout(&mut self, at: Time, key: Timeout) {
        let Self { timers, acquires, rounds, closing, .. } = self;
        timers.set(at, key, |at, key| is_current(at, key, acquires, rounds, *closing));
    }

    pub(crate) fn node_state(&self, node: NodeId) -> NodeState {
        self.nodes[node].state()
    }

    pub(crate) fn eligibility(&self, node: NodeId, now: Time) -> VoteEligibility {
        self.nodes[node].eligibility(now, &self.cx)
    }

    pub(crate) fn server_info(&self, node: NodeId) -> &ServerInfo {
        &self.nodes[node].info
    }

    /// Predicts for each node whether its grants would count if new connections reached `servers` at `now`. An entry of
    /// `servers` is `None` if the connection failed. The result contains the reason why a node's grants would not
    /// count, or `None` if they would count.
    pub(crate) fn preview_guard(
        &self,
        servers: &[Option<ServerInfo>],
        now: Time,
    ) -> Vec<Option<NodeFailure>> {
        self.cx.preview(servers, now)
    }

    #[cfg(any(test, feature = "blocking", feature = "test-util"))]
    pub(crate) fn pending_releases(&self, node: NodeId) -> usize {
        self.nodes[node].pending_releases()
    }

    #[cfg(test)]
    pub(crate) fn leases(&self) -> impl Iterator<Item = (super::LeaseId, &super::SharedLease)> {
        self.leases.iter().map(|(id, lease)| (id, &*lease.shared))
    }
}
