//! One connection to a node, without its stream: commands and bytes in, bytes and votes out.
//!
//! Here is decided what is written and when, what the replies are, whether the node is alive, and which
//! connections of other tasks have to be ended first (I8). Nothing here waits, and nothing reads a clock:
//! each call is told what time it is.
//!
//! Events in:
//!
//! - bytes, by way of the [conversation](Line::conversation);
//! - [`Line::handle_answered`]: the oldest pipeline was answered;
//! - [`Line::handle_timeout`]: the alarm rings that was set to [`Line::next_timeout`];
//! - [`Line::handle_yielded`]: others were let run.
//!
//! Then, until there is nothing: [`Line::poll_chore`] is what the task has to do, and [`Line::write`] adds the
//! next pipeline to the bytes that are to be sent.

use super::backlog::{Backlog, MAX_COMMANDS};
use super::peer::{Peer, Stale};
use super::queued_command::QueuedCommand;
use super::timer_clock::Moment;
use crate::observe::NodeState;
use crate::protocol::{Action, HEARTBEAT, Liveness, Time};
use crate::wire::{Conversation, NodeFailure, append_sync_check};
use redis::Value;
use std::time::Duration;

/// Pipelines under way at once: enough to keep the node busy while replies travel, few enough that
/// commands gather into larger pipelines under load.
const MAX_UNDER_WAY: usize = 4;

/// So few commands are not worth a pipeline of their own while others are about to put more here.
const FEW: usize = 32;

/// Age of the pipeline that was answered last, from which the connection is read before a write: the server may have
/// closed it while this process was stopped. Servers close idle connections after a second at the earliest.
const QUIET: Duration = Duration::from_millis(100);

/// What a pipeline is about.
pub(super) struct Written {
    /// When it was written, by the timers.
    pub(super) at: Time,
    pub(super) commands: Vec<QueuedCommand>,
    /// When, by our clock, if the node is asked for its time behind them.
    pub(super) sealed: Option<Time>,
    /// The connections that it kills; then there is nothing else in it.
    kills: Vec<Stale>,
    /// True for an isolated release: no pipeline is written behind it before its answer.
    is_isolated: bool,
}

impl Written {
    /// Nothing that is heard of again.
    pub(super) fn of_set_up() -> Self {
        let at = Time::from_nanos(0);
        Self { at, commands: Vec::new(), sealed: None, kills: Vec::new(), is_isolated: false }
    }
}

/// What was asked, and the answers to that.
pub(super) type Answered = (Written, Vec<Value>);

/// What a line needs its task for.
pub(super) enum Chore {
    /// Yield, and tell [how long that took](Line::handle_yielded). What has come meanwhile is read before
    /// anything else is decided.
    Yield,
    /// Make another connection, beside this one.
    MakeSecond,
}

/// One connection to a node that was set up.
pub(super) struct Line {
    said: Conversation<Written>,
    peer: Peer,
    liveness: Liveness,
    /// Connections of other tasks that broke, and that the server was told to close: it has not answered.
    killing: Vec<Stale>,
    /// How many commands the last pipeline had.
    last_count: usize,
    /// When the node was last asked for its time, by the timers; the set-up was some time ago.
    last_sealed: Option<Time>,
    /// When the pipeline that was answered last was written, by our clock.
    last_answered: Time,
    /// True if an isolated release waits until a pipeline of other commands was written, if there are any.
    shared_first: bool,
}

impl Line {
    /// One that was set up by `now`, to a node with this node timeout.
    pub(super) fn new(
        said: Conversation<Written>,
        peer: Peer,
        timeout: Duration,
        now: Moment,
    ) -> Self {
        let liveness = Liveness::new(timeout, now.timer);
        let last_answered = peer.asked;
        Self {
            said,
            peer,
            liveness,
            killing: Vec::new(),
            last_count: 0,
            last_sealed: None,
            last_answered,
            shared_first: true,
        }
    }

    /// What is said over it: bytes go there, and come from there.
    pub(super) fn conversation(&mut self) -> &mut Conversation<Written> {
        &mut self.said
    }

    /// The connection, once it broke.
    pub(super) fn broken(&self) -> Stale {
        self.peer.broken()
    }

    /// For how long the node has not answered.
    pub(super) fn silence(&self, now: Moment) -> Duration {
        self.liveness.silence(now.timer)
    }

    /// True while the node owes an answer for longer than it may.
    pub(super) fn is_stalled(&self) -> bool {
        self.liveness.is_stalled()
    }

    /// True if the connection is to be read before anything is written.
    pub(super) fn is_quiet(&self, now: Moment) -> bool {
        now.ours.since(self.last_answered) >= QUIET
    }

    /// True if another pipeline may be written.
    pub(super) fn has_room(&self) -> bool {
        !self.is_stalled()
            && self.said.in_flight() < MAX_UNDER_WAY
            && !self.said.unanswered().any(|written| written.is_isolated)
    }

    /// True if no pipeline is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.said.in_flight() == 0
    }

    /// True if so many commands are better written once others have run: the node is busy, or who was answered
    /// together asks together again.
    pub(super) fn expects_more_than(&self, count: usize) -> bool {
        count < FEW && (self.said.in_flight() > 0 || self.last_count > 1)
    }

    /// The commands that were written and not answered, oldest first.
    fn unanswered(&self) -> impl Iterator<Item = &QueuedCommand> {
        self.said.unanswered().flat_map(|written| &written.commands)
    }

    /// True if no command waits for its answer: who hangs is not waited for to tell what time it is.
    pub(super) fn has_nothing_unanswered(&self) -> bool {
        self.unanswered().next().is_none()
    }

    /// Takes the commands that were written and not answered, oldest first.
    pub(super) fn take_unanswered(&mut self) -> impl Iterator<Item = QueuedCommand> {
        self.said.take_unanswered().flat_map(|written| written.commands)
    }

    /// When something has to be done though nothing happens, by the timers: also if that is to write what is
    /// owed, which may be written again at `next_repeat`.
    pub(super) fn next_timeout(&self, next_repeat: Option<Time>) -> Time {
        let timeout = self.liveness.next_timeout();
        // While a reply is overdue, or no pipeline has room, nothing owed can be written.
        let repeat = next_repeat.filter(|_| self.has_room());
        repeat.map_or(timeout, |repeat| repeat.min(timeout))
    }

    /// The oldest pipeline was answered. True if the node was stalled, and is back; an error if the connection
    /// is of no use any more.
    pub(super) fn handle_answered(
        &mut self,
        (written, replies): Answered,
        backlog: &mut Backlog,
        now: Moment,
    ) -> Result<bool, NodeFailure> {
        // The reply may have arrived long ago, before this process was stopped.
        self.last_answered = now.ours.before(now.timer.since(written.at));
        if written.kills.is_empty() {
            backlog.settle(written, &replies, now, &mut self.peer.can)?;
        } else {
            self.peer.handle_killed(&written.kills, &replies, &backlog.node, now.timer)?;
            self.killing.retain(|one| !written.kills.contains(one));
        }
        let oldest = self.said.unanswered().next().map(|written| written.at);
        let is_back = self.liveness.handle_reply(oldest, now.timer);
        if is_back {
            backlog.handle_recovery(now.timer);
        }
        Ok(is_back)
    }

    /// An alarm rings that was set to `due`.
    pub(super) fn handle_timeout(&mut self, due: Time, now: Moment) {
        self.liveness.handle_timeout(due, now.timer);
    }

    /// Others were let run from `since` on.
    pub(super) fn handle_yielded(&mut self, since: Moment, now: Moment) {
        self.liveness.handle_yielded(now.timer.since(since.timer), now.timer);
    }

    /// What its task has to do now, if anything; an error if the connection is to be given up.
    pub(super) fn poll_chore(
        &mut self,
        backlog: &Backlog,
        now: Moment,
    ) -> Result<Option<Chore>, NodeFailure> {
        let is_quorum_silent = || backlog.links.is_quorum_silent();
        while let Some(action) = self.liveness.poll(now.timer, is_quorum_silent()) {
            match action {
                Action::Heartbeat => self.beat(now),
                Action::Stall => self.stall(backlog),
                Action::Yield => return Ok(Some(Chore::Yield)),
                Action::MakeSecond => return Ok(Some(Chore::MakeSecond)),
                Action::Abandon(silence) => return Err(NodeFailure::Stalled(silence)),
            }
        }
        Ok(None)
    }

    /// Asks what time it is, and nothing else.
    fn beat(&mut self, now: Moment) {
        self.end_pipeline(Vec::new(), true, now);
    }

    fn stall(&self, backlog: &Backlog) {
        backlog.note_silence(true);
        // What hangs there can run at any time, also after its ttl.
        self.unanswered().for_each(|command| command.note_in_doubt(backlog.node.id));
        backlog.note_state(NodeState::Stalled);
    }

    /// Writes one pipeline of what is owed and what has come in; answers what cannot be written.
    pub(super) fn write(&mut self, backlog: &mut Backlog, now: Moment) {
        if self.is_stalled() {
            backlog.refuse(&NodeFailure::Stalled(self.silence(now)), now);
        }
        if !self.has_room() {
            return;
        }
        if self.awaits_idle(backlog, now)
            || self.is_isolated_next(backlog, now) && self.write_isolated(backlog, now)
        {
            return;
        }
        let (isolated, left): (Vec<_>, Vec<_>) =
            self.take_left(backlog, now).into_iter().partition(QueuedCommand::is_isolated);
        for command in isolated {
            backlog.keep(command);
        }
        let owed = backlog.take_owed(now);
        let most = owed.len() + left.len() + backlog.inbox.len();
        if most == 0 {
            return;
        }
        let mut written = Vec::with_capacity(most);
        let (id, can, now_ours) = (backlog.node.id, self.peer.can, now.ours);
        for mut command in owed.into_iter().chain(left).chain(backlog.inbox.drain(..)) {
            let requests = self.said.requests();
            if command.is_void(id, now_ours) || !command.write(id, now_ours, can, requests) {
                command.answer_void(id);
            } else {
                written.push(command);
            }
        }
        if !written.is_empty() {
            // Replies are told apart by their order alone: the seal shows that it is kept.
            // Commands that grant nothing do not tell the time, and make the connection no idle one that is asked for it.
            let is_sealed = self.is_seal_due(now) || written.iter().any(QueuedCommand::is_to_grant);
            self.end_pipeline(written, is_sealed, now);
        }
    }

    /// True if the next pipeline asks for the node's time, whatever its commands are.
    fn is_seal_due(&self, now: Moment) -> bool {
        self.last_sealed.is_none_or(|last| now.timer.since(last) >= HEARTBEAT)
    }

    /// True if an isolated release is written next. Earlier pipelines are answered before, and later commands wait for
    /// its answer: if it closes the connection, no other command fails with it.
    fn is_isolated_next(&self, backlog: &Backlog, now: Moment) -> bool {
        backlog.has_isolated(now) && !(self.shared_first && backlog.has_shared(now))
    }

    /// True if an isolated release is written next, and the connection is not idle yet: no command is written before.
    fn awaits_idle(&self, backlog: &Backlog, now: Moment) -> bool {
        !self.is_idle() && self.is_isolated_next(backlog, now)
    }

    /// True if an isolated release is next: the connection must be idle before any command is written.
    pub(super) fn awaits_replies(&self, backlog: &Backlog) -> bool {
        backlog.owed.has_isolated() && self.awaits_idle(backlog, backlog.node.moment())
    }

    /// When pending commands are to be written; `None` if there are none, or if they wait for replies.
    pub(super) fn next_repeat(&self, backlog: &Backlog) -> Option<Time> {
        if self.awaits_replies(backlog) { None } else { backlog.next_repeat(self.is_idle()) }
    }

    /// Writes one isolated release. False if none is of use.
    fn write_isolated(&mut self, backlog: &mut Backlog, now: Moment) -> bool {
        let (id, can) = (backlog.node.id, self.peer.can);
        let Some(mut command) = backlog.take_isolated(now) else { return false };
        if command.is_void(id, now.ours) || !command.write(id, now.ours, can, self.said.requests())
        {
            command.answer_void(id);
            return false;
        }
        self.end_pipeline(vec![command], self.is_seal_due(now), now);
        self.shared_first = true;
        true
    }

    /// What was added for `commands` is a pipeline, with a `TIME` at its end if it is sealed. Pipelines are
    /// written in the order of these calls (I8).
    fn end_pipeline(&mut self, commands: Vec<QueuedCommand>, is_sealed: bool, now: Moment) {
        if is_sealed {
            self.last_sealed = Some(now.timer);
            append_sync_check(self.said.requests());
        }
        self.last_count = commands.len();
        let sealed = is_sealed.then_some(now.ours);
        let is_isolated = commands.iter().any(QueuedCommand::is_isolated);
        self.shared_first = false;
        let (at, kills) = (now.timer, Vec::new());
        self.said.end_pipeline(Written { at, commands, sealed, kills, is_isolated });
        self.liveness.handle_written(now.timer);
    }

    /// Takes what other tasks have left. What connections of theirs that broke may still deliver must not
    /// come after it (I8): the server is told to close them first, in the order of this connection.
    ///
    /// The answer is not waited for here, but read in its turn, as any:
    /// 1. A connection of another task breaks, and this node hangs.
    /// 2. Its task waits for the answer to the `CLIENT KILL`, reads nothing meanwhile, and its alarm is late.
    /// 3. A late alarm says that this process was held up, and the silence of the node is forgiven: for some
    ///    node timeouts more, it is sent what it does not answer.
    fn take_left(&mut self, backlog: &Backlog, now: Moment) -> Vec<QueuedCommand> {
        let handover = &backlog.node.handover;
        loop {
            if let Some(left) = handover.take(MAX_COMMANDS, &self.killing) {
                return left;
            }
            self.kill_stale(handover.broken(), now);
        }
    }

    /// Tells the server to close those of `broken` that it was not told to close yet. What is written after
    /// this runs after it.
    fn kill_stale(&mut self, mut broken: Vec<Stale>, now: Moment) {
        broken.retain(|one| !self.killing.contains(one));
        if broken.is_empty() {
            // Another task has seen to them since we looked.
            return;
        }
        self.peer.ask_to_kill(&broken, self.said.requests());
        self.killing.extend_from_slice(&broken);
        let at = now.timer;
        self.said.end_pipeline(Written { at, kills: broken, ..Written::of_set_up() });
        self.liveness.handle_written(at);
    }
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
