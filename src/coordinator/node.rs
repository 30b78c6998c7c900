//! One node of a client: the state of its connection, and the commands that the client has submitted to it.
//!
//! If the node is connected, a submitted command is written with the next pipeline. Commands wait while the first
//! connection is being opened, or while a broken connection is being replaced. If the node is down or stalled,
//! commands fail. Releases and extensions that the node has not executed stay pending, and the client sends them again
//! later.

use super::command::NodeCommand;
use super::connection::Connection;
use super::context::{Context, NodeOutput};
use super::handshake::Handshake;
use crate::observe::event::Event;
use crate::observe::{EventLevel, NodeState};
use crate::protocol::{Backoff, NodeClock, NodeId, PendingCommands, Reconnect, StaleWindow, Time};
use crate::wire::{Answer, NodeFailure, ServerInfo, Value};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

const MAX_COMMANDS: usize = 512;

/// The queue length at which cancelled commands are removed from the queue. Callers can submit and cancel any number of
/// commands while the node is not connected, so the queue would otherwise grow without limit (I12).
const PURGE_THRESHOLD: usize = 1 << 12;

pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) link: Link,
    /// The handshake of a second connection, which the client opens if the node stops replying on the current
    /// connection.
    pub(super) second_handshake: Option<Handshake>,
    pub(super) wants_second: bool,
    pub(super) reconnect: Reconnect,
    /// Broken connections whose commands the server may still receive and execute.
    pub(super) stale: StaleWindow<Arc<str>>,
    pub(super) clock: NodeClock,
    /// Round-trip time of the last command that read the node's clock.
    pub(super) round_trip: Duration,
    pub(super) info: ServerInfo,
    /// Whether at least one attempt to connect has ended, successfully or not.
    pub(super) was_tried: bool,
    /// Whether a command was not answered within the node timeout, and the node has not replied since.
    pub(super) is_silent: bool,
    pub(super) connections: usize,
    inbox: VecDeque<NodeCommand>,
    purge_at: usize,
    /// Releases and extensions to send again. This node has already voted in their rounds, so the later replies are not
    /// votes.
    pending: PendingCommands<NodeCommand, Value>,
    pub(super) repeat_backoff: Backoff,
    pub(super) isolated_backoff: Backoff,
    /// Limits how often a `MOVED` reply makes the client reconnect.
    pub(super) moved_backoff: Backoff,
    reported_pending: usize,
}

pub(super) enum Link {
    /// No connection. Commands fail with the error `why`. If `why` is `None`, commands wait instead, because the client
    /// is about to open its first connection, or to replace a connection that had been stable.
    Disconnected {
        why: Option<NodeFailure>,
    },
    Connecting {
        handshake: Box<Handshake>,
        why: Option<NodeFailure>,
    },
    Connected(Box<Connection>),
}

impl Node {
    pub(super) fn new(id: NodeId, clock: NodeClock) -> Self {
        Self {
            id,
            link: Link::Disconnected { why: None },
            second_handshake: None,
            wants_second: false,
            reconnect: Reconnect::new(),
            stale: StaleWindow::default(),
            clock,
            round_trip: Duration::ZERO,
            info: ServerInfo::default(),
            was_tried: false,
            is_silent: false,
            connections: 0,
            inbox: VecDeque::new(),
            purge_at: PURGE_THRESHOLD,
            pending: PendingCommands::new(),
            repeat_backoff: Backoff::for_refused_commands(),
            isolated_backoff: Backoff::for_isolated_releases(),
            moved_backoff: Backoff::for_moved(),
            reported_pending: 0,
        }
    }

    pub(super) fn connection(&self) -> Option<&Connection> {
        if let Link::Connected(connection) = &self.link { Some(connection) } else { None }
    }

    pub(super) fn connection_mut(&mut self) -> Option<&mut Connection> {
        if let Link::Connected(connection) = &mut self.link { Some(connection) } else { None }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connection().is_some()
    }

    pub(super) fn state(&self) -> NodeState {
        match &self.link {
            Link::Connected(connection) if connection.is_stalled() => NodeState::Stalled,
            Link::Connected(_) => NodeState::Up,
            Link::Disconnected { why } | Link::Connecting { why, .. } => {
                why.clone().map_or(NodeState::Connecting, NodeState::Down)
            }
        }
    }

    /// Returns the error that new commands fail with. Returns `None` if the node is connected and responsive, or if
    /// commands can wait for a connection.
    fn refusal(&self, now: Time) -> Option<NodeFailure> {
        match &self.link {
            Link::Connected(connection) => {
                connection.is_stalled().then(|| NodeFailure::Stalled(connection.silence(now)))
            }
            Link::Disconnected { why } | Link::Connecting { why, .. } => why.clone(),
        }
    }

    /// Queues a command for the next pipeline, or until the node is connected. If the node is down or stalled, the
    /// command fails immediately.
    pub(super) fn submit(&mut self, command: NodeCommand, now: Time, cx: &mut Context) {
        if command.is_cancelled(self.id, now) {
            return self.cancel(command, now, cx);
        }
        if let Some(failure) = self.refusal(now) {
            self.refuse(command, failure, now, cx);
            return self.emit_pending(cx);
        }
        self.inbox.push_back(command);
        if self.inbox.len() >= self.purge_at {
            let (cancelled, kept): (VecDeque<_>, VecDeque<_>) =
                self.inbox.drain(..).partition(|command| command.is_cancelled(self.id, now));
            self.inbox = kept;
            self.purge_at = PURGE_THRESHOLD.max(2 * self.inbox.len());
            for command in cancelled {
                self.cancel(command, now, cx);
            }
        }
    }

    pub(super) fn refuse_all(&mut self, now: Time, cx: &mut Context) {
        let Some(failure) = self.refusal(now) else { return };
        for command in std::mem::take(&mut self.inbox) {
            if command.is_cancelled(self.id, now) {
                self.cancel(command, now, cx);
            } else {
                self.refuse(command, failure.clone(), now, cx);
            }
        }
        self.emit_pending(cx);
    }

    fn refuse(
        &mut self,
        mut command: NodeCommand,
        failure: NodeFailure,
        now: Time,
        cx: &mut Context,
    ) {
        self.fail(&mut command, failure, now, cx);
        self.keep_if_pending(command);
    }

    fn cancel(&mut self, mut command: NodeCommand, now: Time, cx: &mut Context) {
        if let Some(reply) = command.cancelled_reply(self.id) {
            self.vote(&mut command, reply, now, cx);
        } else if command.has_fallen_back()
            && let Some(round) = command.take_round()
        {
            cx.outputs.push_back(NodeOutput::NotAsked { round, node: self.id });
        }
    }

    pub(super) fn vote(
        &self,
        command: &mut NodeCommand,
        answer: Answer,
        at: Time,
        cx: &mut Context,
    ) {
        if let Some(round) = command.take_round() {
            cx.outputs.push_back(NodeOutput::Vote { round, node: self.id, answer, at });
        }
    }

    pub(super) fn fail(
        &self,
        command: &mut NodeCommand,
        failure: NodeFailure,
        now: Time,
        cx: &mut Context,
    ) {
        let answer = Answer::Failed(failure);
        self.emit_command(command.kind(), &answer, None, cx);
        self.vote(command, answer, now, cx);
    }

    pub(super) fn keep_if_pending(&mut self, command: NodeCommand) {
        let work = command.pending_work(self.id);
        self.pending.add(command, work);
    }

    /// Postpones the isolated releases that share a key with `failed`. The server closed the connection instead of
    /// replying to `failed`, and may do so again for releases of the same keys. Isolated releases of other keys are
    /// sent first.
    pub(super) fn defer_like(&mut self, failed: &NodeCommand) {
        if let Some(unanswered) = failed.isolated_unanswered() {
            self.pending.defer_isolated(unanswered, |other| other.shares_key(failed));
        }
    }

    /// Queues `commands` to be sent again, ahead of commands that were never sent but behind earlier repeated commands.
    pub(super) fn repeat_at_once(&mut self, commands: Vec<NodeCommand>) {
        if commands.is_empty() {
            return;
        }
        let repeated = self.inbox.iter().take_while(|command| command.has_fallen_back()).count();
        let rest = self.inbox.split_off(repeated);
        self.inbox.extend(commands);
        self.inbox.extend(rest);
    }

    pub(super) fn prune(&mut self, now: Time, cx: &mut Context) {
        self.prune_pending(now, cx);
        self.emit_pending(cx);
    }

    fn prune_pending(&mut self, now: Time, cx: &Context) {
        let id = self.id;
        self.pending.prune(now, cx.is_closing, |command| command.pending_work(id));
    }

    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Drops the queued commands. The caller must ensure that none of them is a release that is still needed.
    pub(super) fn drop_waiting(&mut self) {
        self.inbox.clear();
    }

    #[cfg(test)]
    pub(super) fn is_done(&self) -> bool {
        self.inbox.is_empty()
            && self.pending.is_empty()
            && self.connection().is_none_or(|connection| connection.unanswered().next().is_none())
    }

    pub(super) fn pending_releases(&self) -> usize {
        self.submitted_releases().count() + self.pending.releases()
    }

    pub(super) fn has_releases(&self) -> bool {
        self.pending.releases() > 0 || self.submitted_releases().next().is_some()
    }

    fn submitted_releases(&self) -> impl Iterator<Item = &NodeCommand> {
        let unanswered = self.connection().into_iter().flat_map(Connection::unanswered);
        self.inbox.iter().chain(unanswered).filter(|command| command.is_release())
    }

    /// Returns the time at which the next pending command can be sent again. Returns `None` if no command is pending,
    /// or if the node must first be connected or reply to earlier commands.
    pub(super) fn next_repeat(&self, now: Time) -> Option<Time> {
        let connection = self.connection().filter(|_| self.has_pending())?;
        if !connection.has_room() || self.awaits_replies(connection, now) {
            return None;
        }
        let shared = self.pending.has_shared().then(|| self.repeat_backoff.next_try());
        let isolated = connection.is_idle() && self.pending.has_isolated();
        let isolated = isolated.then(|| self.isolated_backoff.next_try());
        [shared, isolated].into_iter().flatten().min()
    }

    /// Returns true if commands are due at `now` and the connection can accept them. Returns false while all commands
    /// must wait, for example because the connection has no room.
    pub(super) fn can_write_commands(&self, now: Time) -> bool {
        let Some(connection) = self.connection() else { return false };
        let is_due = || !self.inbox.is_empty() || self.next_repeat(now).is_some_and(|at| at <= now);
        self.has_waiting()
            && is_due()
            && connection.has_room()
            && !self.awaits_replies(connection, now)
    }

    fn has_waiting(&self) -> bool {
        !self.inbox.is_empty() || self.has_pending()
    }

    pub(super) fn waiting(&self) -> usize {
        self.inbox.len()
    }

    /// Returns true if the next pipeline must be an isolated release, which is a release that the client sends alone
    /// because the server has closed connections instead of replying to it. The client sends the isolated release once
    /// all earlier pipelines are answered, and sends later commands after its reply. If the server closes the
    /// connection again, no other command is lost.
    fn is_isolated_next(&self, connection: &Connection, now: Time) -> bool {
        let is_due = self.pending.has_isolated() && now >= self.isolated_backoff.next_try();
        is_due && !(connection.shared_first && self.has_shared(now))
    }

    fn has_shared(&self, now: Time) -> bool {
        let is_due = self.pending.has_shared() && now >= self.repeat_backoff.next_try();
        is_due || !self.inbox.is_empty()
    }

    /// Returns true if an isolated release is next and earlier commands are unanswered. No pipeline may then be
    /// written.
    fn awaits_replies(&self, connection: &Connection, now: Time) -> bool {
        !connection.is_idle() && self.is_isolated_next(connection, now)
    }

    /// If the connection has room, writes the next pipeline: either a single isolated release, or the pending commands
    /// that are due followed by the queued commands.
    pub(super) fn write(&mut self, now: Time, cx: &mut Context) {
        let Some(connection) = self.connection().filter(|_| self.has_waiting()) else { return };
        if !connection.has_room() || self.awaits_replies(connection, now) {
            return;
        }
        if self.is_isolated_next(connection, now) && self.write_isolated(now, cx) {
            return;
        }
        let mut repeated = Vec::new();
        let is_due = self.pending.has_shared() && now >= self.repeat_backoff.next_try();
        if is_due {
            self.prune_pending(now, cx);
            repeated = self.pending.take(MAX_COMMANDS);
        }
        // Cancelled commands do not count toward the pipeline's size, because no later call would write the commands
        // behind them.
        let spare = self.connection_mut().map(Connection::take_spare).unwrap_or_default();
        let (mut repeated, mut written) = (repeated.into_iter(), spare);
        while written.len() < MAX_COMMANDS
            && let Some(command) = repeated.next().or_else(|| self.inbox.pop_front())
        {
            if command.is_cancelled(self.id, now) {
                self.cancel(command, now, cx);
            } else {
                written.push(command);
            }
        }
        if !written.is_empty()
            && let Some(connection) = self.connection_mut()
        {
            // A repeated release counts as pending until its reply, so no event is emitted here.
            return connection.write(written, now);
        }
        if is_due {
            self.emit_pending(cx);
        }
    }

    fn write_isolated(&mut self, now: Time, cx: &mut Context) -> bool {
        self.prune_pending(now, cx);
        let Some(command) = self.pending.take_isolated() else { return false };
        if command.is_cancelled(self.id, now) {
            self.cancel(command, now, cx);
            return false;
        }
        if let Some(connection) = self.connection_mut() {
            connection.write(vec![command], now);
        }
        true
    }

    pub(super) fn emit_pending(&mut self, cx: &mut Context) {
        let pending = self.pending.releases();
        let before = std::mem::replace(&mut self.reported_pending, pending);
        if before != pending {
            let node = self.id;
            cx.emit(EventLevel::Debug, |cx| Event::PendingReleasesChanged {
                node: cx.name(node).clone(),
                before,
                pending,
            });
        }
    }
}
