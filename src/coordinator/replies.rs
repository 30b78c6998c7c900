//! Handles a node's replies: converts them into votes, and detects lost keys and clock steps.

use super::command::{NodeCommand, Pipeline};
use super::context::{Context, NodeOutput};
use super::node::Node;
use super::votes::node_vote;
use crate::observe::event::{CommandKind, Event};
use crate::observe::{EventLevel, NodeState, VoteEligibility};
use crate::protocol::{Reading, Time};
use crate::wire::{Answer, Grant, Invalidations, Keys, NodeFailure, verify_sync};
use redis::Value;
use std::time::Duration;

/// When the replies to a pipeline were read (`at`), and from when their grants count as votes (`counts_from`). The
/// second time is later if the node's clock has stepped forward (I15).
#[derive(Clone, Copy)]
pub(super) struct Received {
    at: Time,
    counts_from: Time,
}

impl Node {
    /// Handles the replies to all completely answered pipelines. After an error, the caller must replace the
    /// connection.
    pub(super) fn handle_replies(
        &mut self,
        now: Time,
        cx: &mut Context,
    ) -> Result<(), NodeFailure> {
        loop {
            let Some(connection) = self.connection_mut() else { return Ok(()) };
            let polled = connection.poll_replies();
            let Some((mut pipeline, replies)) = polled.map_err(|error| {
                let last_error = connection.conversation().last_error();
                NodeFailure::disconnected(&error, last_error.as_deref())
            })?
            else {
                break;
            };
            self.handle_pipeline(&mut pipeline, &replies, now, cx)?;
            let is_back = self.connection_mut().is_some_and(|connection| {
                connection.reuse(pipeline.commands, replies);
                connection.handle_reply(now)
            });
            if is_back {
                if let Some(second) = self.second_handshake.take() {
                    cx.closed.push_back(second.id);
                }
                self.wants_second = false;
                self.handle_recovery(now, cx);
            }
        }
        Ok(())
    }

    /// Handles the invalidation pushes that were received. Must also be called after a malformed reply, because valid
    /// pushes may have arrived before it.
    pub(super) fn handle_pushes(&mut self, now: Time, cx: &mut Context) {
        let pushed = self.connection_mut().and_then(|it| it.conversation().poll_invalidations());
        let Some(Invalidations { keys, flushed, overflowed }) = pushed else { return };
        let node = self.id;
        if flushed {
            cx.handle_flush(node, now);
        }
        if flushed || overflowed {
            cx.outputs.push_back(NodeOutput::Changed { node, key: None });
        }
        for key in keys {
            cx.outputs.push_back(NodeOutput::Changed { node, key: Some(key.into()) });
        }
    }

    fn handle_pipeline(
        &mut self,
        pipeline: &mut Pipeline,
        replies: &[Value],
        now: Time,
        cx: &mut Context,
    ) -> Result<(), NodeFailure> {
        let Pipeline { commands, written_at, has_time, .. } = pipeline;
        let (written_at, has_time) = (*written_at, *has_time);
        let expected = commands.iter().map(NodeCommand::reply_count).sum::<usize>();
        let time = match verify_sync(replies, expected + usize::from(has_time), has_time) {
            Ok(time) => time,
            Err(failure) => {
                self.handle_unanswered(commands.drain(..), &failure, now, cx);
                return Err(failure);
            }
        };
        let reading =
            time.map(|server_time_us| Reading { sent: written_at, server_time_us, received: now });
        let received = if has_time {
            self.handle_reading(reading, now, cx)
        } else {
            Received { at: now, counts_from: now }
        };
        let (mut repeated, mut refusal) = (Vec::new(), None);
        let mut rest = replies;
        for command in commands.drain(..) {
            let (own, others) = rest.split_at(command.reply_count());
            rest = others;
            if let Some(native) = command.refused_native(own)
                && let Some(connection) = self.connection_mut()
            {
                connection.peer.can.handle_refused(native);
            }
            let written = (written_at, received);
            repeated.extend(self.handle_command(command, own, written, &mut refusal, cx));
        }
        self.repeat_at_once(repeated);
        self.emit_pending(cx);
        self.emit_health(now, cx);
        match refusal {
            Some(refusal) if self.ends_connection(&refusal, now, cx) => Err(refusal),
            _ => Ok(()),
        }
    }

    /// Returns true if the client must reconnect because of `refusal`, and resolve the node's address again. A `MOVED`
    /// reply may concern only one key while the server still serves the others. For this reason, `MOVED` causes at most
    /// one reconnect per backoff delay.
    fn ends_connection(&mut self, refusal: &NodeFailure, now: Time, cx: &Context) -> bool {
        if !refusal.is_moved() {
            return true;
        }
        let is_due = now >= self.moved_backoff.next_try();
        if is_due {
            self.moved_backoff.handle_failure(now, cx.random.number());
        }
        is_due
    }

    /// Handles the replies to one command. Returns the command if the server could not execute it as it was encoded.
    /// The caller must then resend it immediately, in another encoding.
    fn handle_command(
        &mut self,
        mut command: NodeCommand,
        replies: &[Value],
        (written_at, received): (Time, Received),
        refusal: &mut Option<NodeFailure>,
        cx: &mut Context,
    ) -> Option<NodeCommand> {
        if command.is_isolated() {
            self.isolated_backoff.handle_success();
        }
        if command.fall_back(self.id, replies) {
            return Some(command);
        }
        let now = received.at;
        let answer = command.read(self.id, replies);
        let failure = if let Answer::Failed(failure) = &answer { Some(failure) } else { None };
        let has_failed = failure.is_some();
        command.handle_reply(now, has_failed);
        if let Some(failure) = failure.filter(|it| it.refuses_every_write() || it.is_moved()) {
            *refusal = Some(failure.clone());
        }
        let freed = command.silently_freed(&answer);
        let answer = self.apply_guards(&command, answer, received, cx);
        self.emit_command(command.kind(), &answer, Some(now.since(written_at)), cx);
        self.vote(&mut command, answer, now, cx);
        for key in freed.iter().flat_map(Keys::iter) {
            let key = Some(Box::from(&**key));
            cx.outputs.push_back(NodeOutput::Changed { node: self.id, key });
        }
        if !command.is_release() && !command.is_extension() {
            return None;
        }
        let may_be_undone = command.is_release()
            && command.claim().is_in_doubt(self.id)
            && self.stale.may_undo(written_at);
        if has_failed || may_be_undone {
            self.keep_if_pending(command);
            self.repeat_backoff.handle_failure(now, cx.random.number());
        } else if !self.has_pending() {
            self.repeat_backoff.handle_success();
        }
        None
    }

    /// Handles commands whose connection ended before the reply. The node may still execute them. Commands that [keep
    /// their vote](NodeCommand::keeps_vote) wait for the next connection, before the commands that were never sent. If
    /// the node counts as down, the caller then fails them with [`Node::refuse_all`]. The others fail here.
    pub(super) fn handle_unanswered(
        &mut self,
        commands: impl Iterator<Item = NodeCommand>,
        failure: &NodeFailure,
        now: Time,
        cx: &mut Context,
    ) {
        let mut repeated = Vec::new();
        for mut command in commands {
            let was_alone = command.is_isolated();
            // A shutdown of this client's runtime is no sign that the node refuses the release.
            if *failure != NodeFailure::ShutDown {
                command.handle_unanswered();
            }
            command.handle_in_doubt(self.id);
            if was_alone {
                self.isolated_backoff.handle_failure(now, cx.random.number());
                self.defer_like(&command);
            }
            if command.keeps_vote() {
                repeated.push(command);
            } else {
                self.fail(&mut command, failure.clone(), now, cx);
                self.keep_if_pending(command);
            }
        }
        self.repeat_at_once(repeated);
    }

    pub(super) fn emit_command(
        &self,
        kind: Option<CommandKind>,
        answer: &Answer,
        round_trip: Option<Duration>,
        cx: &mut Context,
    ) {
        let Some(command) = kind else { return };
        cx.emit(EventLevel::Debug, |cx| Event::CommandFinished {
            node: cx.name(self.id).clone(),
            command,
            vote: node_vote(answer),
            round_trip,
        });
    }

    /// Updates the estimate of the node's clock with a `TIME` reply that was received at `now`. Returns the time from
    /// which grants in the same pipeline count as votes. `reading` is `None` if the server does not permit `TIME`.
    pub(super) fn handle_reading(
        &mut self,
        reading: Option<Reading>,
        now: Time,
        cx: &mut Context,
    ) -> Received {
        let Some(reading) = reading else {
            // Without a new reading, the lag from earlier readings applies.
            return Received { at: now, counts_from: now.after(self.clock.lag(now)) };
        };
        self.round_trip = reading.received.since(reading.sent);
        let result = self.clock.handle_reading(reading);
        if let Some(ahead) = result.ahead {
            cx.outputs.push_back(NodeOutput::Stepped { node: self.id, ahead });
        }
        Received { at: now, counts_from: result.counts_from }
    }

    /// Returns the answer that counts as the node's vote on `command`. If the node has restarted or its clock is wrong,
    /// a granted `answer` counts only later, or not at all.
    fn apply_guards(
        &self,
        command: &NodeCommand,
        answer: Answer,
        received: Received,
        cx: &mut Context,
    ) -> Answer {
        let now = received.at;
        self.record_kept(command, &answer, now, cx);
        let Answer::Granted(grant) = answer else { return answer };
        let excluded = if command.is_acquire() || command.asks_for_period() {
            self.exclusion(now, cx)
        } else if command.is_extension() {
            self.clock_failure(now)
        } else {
            None
        };
        match excluded {
            Some(failure) => Answer::Excluded(failure),
            None => deferred(command, grant, received, cx),
        }
    }

    /// Records until when the node must keep the keys that it has granted. If a key is missing before that time,
    /// reports that the node has lost data.
    fn record_kept(&self, command: &NodeCommand, answer: &Answer, now: Time, cx: &mut Context) {
        let (claim, node) = (command.claim(), self.id);
        match answer {
            Answer::Granted(grant) => match command.kept_until(cx.settings.drift) {
                Some(until) => claim.handle_kept(node, grant.key_index, until),
                None if command.is_release() => _ = claim.take_kept(node),
                None => {}
            },
            Answer::Missing { .. } if command.is_extension() || command.is_first_release() => {
                // Redis truncates TTLs to whole milliseconds.
                let limit = now.after(Duration::from_millis(1));
                if claim.take_kept(node).is_some_and(|until| until > limit) {
                    cx.handle_missing(node, now);
                }
            }
            Answer::Denied(_) if command.is_extension() => _ = claim.take_kept(node),
            Answer::Missing { .. }
            | Answer::Denied(_)
            | Answer::Excluded(_)
            | Answer::Failed(_) => {}
        }
    }

    pub(super) fn eligibility(&self, now: Time, cx: &Context) -> VoteEligibility {
        if let Some(recent_start) = cx.recent_start(self.id, now) {
            let (up_for, counts_in) = (recent_start.ago(now), recent_start.until.since(now));
            return VoteEligibility::RecentStart { up_for, counts_in };
        }
        if let Some(failure) = self.exclusion(now, cx) {
            return VoteEligibility::Excluded(failure);
        }
        if self.state() != NodeState::Up {
            return VoteEligibility::Unavailable;
        }
        let lag = self.clock.lag(now);
        if lag.is_zero() { VoteEligibility::Counted } else { VoteEligibility::Deferred { lag } }
    }

    fn exclusion(&self, now: Time, cx: &Context) -> Option<NodeFailure> {
        cx.quarantine_failure(self.id, now).or_else(|| self.clock_failure(now))
    }

    pub(super) fn clock_failure(&self, now: Time) -> Option<NodeFailure> {
        let fast = self.clock.fast(now)?;
        Some(NodeFailure::Suspect { ahead: fast.ahead, counts_in: fast.until.since(now) })
    }
}

/// Delays the vote of a node whose clock has stepped forward (I15). A key of the former holder may have expired early
/// on this node, so the former holder's lease may still be valid. If the new key would expire before its grant counts,
/// the grant is excluded.
///
/// Grants of adopted locks, and of locks that this client already holds, count immediately, because other clients could
/// not acquire these locks.
fn deferred(command: &NodeCommand, grant: Grant, received: Received, cx: &Context) -> Answer {
    let Received { at, counts_from } = received;
    if !command.is_plain_acquire() || counts_from <= at {
        return Answer::Granted(grant);
    }
    if command.kept_until(cx.settings.drift).is_none_or(|until| counts_from >= until) {
        let ahead = counts_from.since(at);
        return Answer::Excluded(NodeFailure::Suspect { ahead, counts_in: ahead });
    }
    Answer::Granted(Grant { counts_from: Some(counts_from), ..grant })
}
