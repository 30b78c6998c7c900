//! One node: its connection, and the commands for it.
//!
//! A command is written over the connection, waits for the first connection or for one that is replaced at once, or
//! fails because the node is down or stalled. Releases and extensions that the node has not executed stay pending.

use super::command::NodeCommand;
use super::connection::Connection;
use super::context::{Context, NodeOutput};
use super::handshake::Handshake;
use crate::observe::event::Event;
use crate::observe::{NodeState, Weight};
use crate::protocol::{Backoff, NodeClock, NodeId, PendingCommands, Reconnect, StaleWindow, Time};
use crate::wire::{Answer, NodeFailure, ServerInfo, Value};
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum number of commands in one pipeline.
const MAX_COMMANDS: usize = 512;

/// Number of waiting commands above which cancelled ones are removed (I12).
const CROWD: usize = 1 << 12;

pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) link: Link,
    /// A connection that is set up beside one that is silent.
    pub(super) second: Option<Handshake>,
    /// True if the driver has to open the second connection.
    pub(super) wants_second: bool,
    pub(super) reconnect: Reconnect,
    /// Connections that broke and may still deliver commands.
    pub(super) stale: StaleWindow<Arc<str>>,
    pub(super) clock: NodeClock,
    pub(super) info: ServerInfo,
    /// True if a connection was established, or could not be.
    pub(super) was_tried: bool,
    /// True if the node has left a command unanswered for longer than the node timeout, until it replies.
    pub(super) is_silent: bool,
    pub(super) connections: usize,
    /// Commands to be written next.
    inbox: VecDeque<NodeCommand>,
    /// Size of `inbox` at which cancelled commands are removed.
    purge_at: usize,
    /// Commands to repeat. They have voted.
    pending: PendingCommands<NodeCommand, Value>,
    /// When to repeat pending commands, and pending isolated releases.
    pub(super) repeats: Backoff,
    pub(super) isolated: Backoff,
    /// When a `MOVED` may end the connection again.
    pub(super) moves: Backoff,
    /// Number of pending releases in the last event.
    reported_pending: usize,
}

pub(super) enum Link {
    /// Not connected. Without a reason, commands wait: before the first connection, and while one that had lasted is
    /// replaced.
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
            second: None,
            wants_second: false,
            reconnect: Reconnect::new(),
            stale: StaleWindow::default(),
            clock,
            info: ServerInfo::default(),
            was_tried: false,
            is_silent: false,
            connections: 0,
            inbox: VecDeque::new(),
            purge_at: CROWD,
            pending: PendingCommands::new(),
            repeats: Backoff::for_refused_commands(),
            isolated: Backoff::for_isolated_releases(),
            moves: Backoff::for_moved(),
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

    /// Why a command cannot be written now and does not wait.
    fn refusal(&self, now: Time) -> Option<NodeFailure> {
        match &self.link {
            Link::Connected(connection) => {
                connection.is_stalled().then(|| NodeFailure::Stalled(connection.silence(now)))
            }
            Link::Disconnected { why } | Link::Connecting { why, .. } => why.clone(),
        }
    }

    /// Takes a command. It is written with the next pipeline, waits for a connection, or fails.
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
            self.purge_at = CROWD.max(2 * self.inbox.len());
            for command in cancelled {
                self.cancel(command, now, cx);
            }
        }
    }

    /// Fails all commands that wait to be written.
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
        self.keep(command);
    }

    /// Handles a cancelled command, which is not written.
    fn cancel(&mut self, mut command: NodeCommand, now: Time, cx: &mut Context) {
        if let Some(reply) = command.cancelled_reply(self.id) {
            self.vote(&mut command, reply, now, cx);
        } else if command.has_fallen_back()
            && let Some(round) = command.take_round()
        {
            cx.outputs.push_back(NodeOutput::NotAsked { round, node: self.id });
        }
    }

    /// Casts the vote of the node.
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

    /// Handles a command that fails without a reply.
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

    /// Keeps a command that has voted, if work is pending on the node.
    pub(super) fn keep(&mut self, command: NodeCommand) {
        let work = command.pending_work(self.id);
        self.pending.add(command, work);
    }

    /// A release that was sent alone has closed its connection. Releases of the same keys may do so, too: others are sent
    /// before them.
    pub(super) fn defer_like(&mut self, failed: &NodeCommand) {
        if let Some(unanswered) = failed.isolated() {
            self.pending.defer_isolated(unanswered, |other| other.shares_key(failed));
        }
    }

    /// Writes commands again, before those that were not written. The earlier ones of them remain in front.
    pub(super) fn repeat_at_once(&mut self, commands: Vec<NodeCommand>) {
        if commands.is_empty() {
            return;
        }
        let repeated = self.inbox.iter().take_while(|command| command.has_fallen_back()).count();
        let rest = self.inbox.split_off(repeated);
        self.inbox.extend(commands);
        self.inbox.extend(rest);
    }

    /// Drops pending commands that are of no more use.
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

    /// Drops the commands that were not written, none of which is a release of use.
    pub(super) fn drop_waiting(&mut self) {
        self.inbox.clear();
    }

    /// True if the node has executed or refused all commands.
    #[cfg(test)]
    pub(super) fn is_done(&self) -> bool {
        self.inbox.is_empty()
            && self.pending.is_empty()
            && self.connection().is_none_or(|connection| connection.unanswered().next().is_none())
    }

    /// Number of releases that the node has not confirmed.
    pub(super) fn pending_releases(&self) -> usize {
        self.submitted_releases().count() + self.pending.releases()
    }

    pub(super) fn has_releases(&self) -> bool {
        self.pending.releases() > 0 || self.submitted_releases().next().is_some()
    }

    /// Releases that wait to be written, and those without a reply.
    fn submitted_releases(&self) -> impl Iterator<Item = &NodeCommand> {
        let unanswered = self.connection().into_iter().flat_map(Connection::unanswered);
        self.inbox.iter().chain(unanswered).filter(|command| command.is_release())
    }

    /// When pending commands are to be written; `None` if there are none, or if they wait for replies.
    pub(super) fn next_repeat(&self, now: Time) -> Option<Time> {
        let connection = self.connection().filter(|_| self.has_pending())?;
        if !connection.has_room() || self.awaits_replies(connection, now) {
            return None;
        }
        let shared = self.pending.has_shared().then(|| self.repeats.next_try());
        let isolated = connection.is_idle() && self.pending.has_isolated();
        let isolated = isolated.then(|| self.isolated.next_try());
        [shared, isolated].into_iter().flatten().min()
    }

    /// True if commands can be written now.
    pub(super) fn has_commands(&self, now: Time) -> bool {
        let Some(connection) = self.connection() else { return false };
        let is_due = || !self.inbox.is_empty() || self.next_repeat(now).is_some_and(|at| at <= now);
        self.has_waiting()
            && is_due()
            && connection.has_room()
            && !self.awaits_replies(connection, now)
    }

    /// True if commands wait to be written or to be repeated.
    fn has_waiting(&self) -> bool {
        !self.inbox.is_empty() || self.has_pending()
    }

    /// Number of commands that wait to be written.
    pub(super) fn waiting(&self) -> usize {
        self.inbox.len()
    }

    /// True if an isolated release is written next. All earlier pipelines are answered before, and later commands wait
    /// for its reply: if the server closes the connection, no other command fails with it.
    fn is_isolated_next(&self, connection: &Connection, now: Time) -> bool {
        let is_due = self.pending.has_isolated() && now >= self.isolated.next_try();
        is_due && !(connection.shared_first && self.has_shared(now))
    }

    /// True if a command can be written that is not an isolated release.
    fn has_shared(&self, now: Time) -> bool {
        let is_due = self.pending.has_shared() && now >= self.repeats.next_try();
        is_due || !self.inbox.is_empty()
    }

    /// True if an isolated release is next, and waits for the replies to earlier commands.
    fn awaits_replies(&self, connection: &Connection, now: Time) -> bool {
        !connection.is_idle() && self.is_isolated_next(connection, now)
    }

    /// Writes one pipeline: pending commands that are due, then the waiting ones.
    pub(super) fn write(&mut self, now: Time, cx: &mut Context) {
        let Some(connection) = self.connection().filter(|_| self.has_waiting()) else { return };
        if !connection.has_room() || self.awaits_replies(connection, now) {
            return;
        }
        if self.is_isolated_next(connection, now) && self.write_isolated(now, cx) {
            return;
        }
        let mut repeated = Vec::new();
        let is_due = self.pending.has_shared() && now >= self.repeats.next_try();
        if is_due {
            self.prune_pending(now, cx);
            repeated = self.pending.take(MAX_COMMANDS);
        }
        // Cancelled commands take no place in the pipeline: no other call would write the commands behind them.
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
            // A release that is written again is pending until the reply.
            return connection.write(written, now);
        }
        if is_due {
            self.emit_pending(cx);
        }
    }

    /// Writes one isolated release. Returns false if none is of use.
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

    /// Emits the number of pending releases if it has changed.
    pub(super) fn emit_pending(&mut self, cx: &mut Context) {
        let pending = self.pending.releases();
        let before = std::mem::replace(&mut self.reported_pending, pending);
        if before != pending {
            let node = self.id;
            cx.emit(Weight::Detail, |cx| Event::PendingReleasesChanged {
                node: cx.name(node).clone(),
                before,
                pending,
            });
        }
    }
}
