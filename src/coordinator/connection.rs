//! An established connection to a node. Groups commands into pipelines, and detects when the node stops replying.

use super::command::{NodeCommand, Pipeline};
use super::context::ConnectionId;
use super::handshake::Peer;
use crate::protocol::{Action, HEARTBEAT, Liveness, Time};
use crate::wire::{Conversation, append_sync_check};
use redis::{RedisError, Value};
use std::time::Duration;

/// The maximum number of unanswered pipelines on a connection. Four pipelines keep the node busy during a round trip.
/// Once the limit is reached, further commands collect for the next pipeline.
const MAX_IN_FLIGHT: usize = 4;

/// The number of waiting commands at which a pipeline is written without delay. Smaller pipelines are delayed while
/// other callers are likely to submit more commands.
const GATHER_LIMIT: usize = 32;

/// The maximum number of times that the driver yields to other tasks before it writes a small pipeline.
const MAX_YIELDS: u32 = 8;

/// If the last answered pipeline is at least this old, the driver reads the connection before it writes, because the
/// server may have closed the connection while this process was stopped. Servers close idle connections after one
/// second at the earliest, so 100 ms is early enough.
const READ_BEFORE_WRITE_AGE: Duration = Duration::from_millis(100);

/// Extra time after the node timeout before a node counts as stalled, limited to a quarter of the node timeout. If this
/// process was suspended for about a node timeout, the replies to its last commands may still be in transit.
const GRACE: Duration = Duration::from_millis(10);

pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) peer: Peer,
    conversation: Conversation<Pipeline>,
    spare: Vec<NodeCommand>,
    liveness: Liveness,
    /// When a reply was found to be overdue. `None` once the driver has read the connection again. The node counts as
    /// stalled only after this read.
    yielded_at: Option<Time>,
    last_pipeline_len: usize,
    /// When `TIME` was last sent after the set-up.
    last_time_command_at: Option<Time>,
    last_answered: Time,
    replied_at: Option<Time>,
    /// Whether other queued commands are written before the next isolated release (a release that must be sent alone).
    pub(super) shared_first: bool,
}

impl Connection {
    pub(super) fn new(
        id: ConnectionId,
        conversation: Conversation<Pipeline>,
        peer: Peer,
        node_timeout: Duration,
        now: Time,
    ) -> Self {
        let last_answered = peer.asked;
        let liveness = Liveness::new(node_timeout + GRACE.min(node_timeout / 4), now);
        let (yielded_at, last_pipeline_len, last_time_command_at, shared_first) =
            (None, 0, None, true);
        Self {
            id,
            peer,
            conversation,
            spare: Vec::new(),
            liveness,
            yielded_at,
            last_pipeline_len,
            last_time_command_at,
            last_answered,
            replied_at: None,
            shared_first,
        }
    }

    pub(super) fn is_stalled(&self) -> bool {
        self.liveness.is_stalled()
    }

    pub(super) fn silence(&self, now: Time) -> Duration {
        self.liveness.silence(now)
    }

    /// Returns true if the last answered pipeline is so old that the driver must read the connection before it writes.
    pub(super) fn is_quiet(&self, now: Time) -> bool {
        now.since(self.last_answered) >= READ_BEFORE_WRITE_AGE
    }

    /// Returns when the last reply to a pipeline was read.
    pub(super) fn replied_at(&self) -> Option<Time> {
        self.replied_at
    }

    fn unanswered_since(&self) -> Option<Time> {
        self.conversation.unanswered().next().map(|pipeline| pipeline.written_at)
    }

    pub(super) fn has_room(&self) -> bool {
        !self.is_stalled()
            && self.conversation.in_flight() < MAX_IN_FLIGHT
            && !self.conversation.unanswered().any(|pipeline| pipeline.is_isolated)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.conversation.in_flight() == 0
    }

    /// Returns true if the driver should delay the `waiting` commands because callers are likely to submit more. This
    /// is likely if the node is busy, or if the last pipeline contained several commands. `times` is the number
    /// of times that the driver has already yielded. One yield might not be enough, because callers may run on another
    /// thread.
    pub(super) fn should_gather(&self, waiting: usize, times: u32) -> bool {
        let is_expected = match times {
            0 => self.conversation.in_flight() > 0 || self.last_pipeline_len > 1,
            1..MAX_YIELDS => waiting < self.last_pipeline_len,
            _ => false,
        };
        is_expected && waiting < GATHER_LIMIT
    }

    /// Encodes `commands` as the next pipeline. Appends `TIME` if a command [needs it](NodeCommand::needs_time), or if
    /// the last `TIME` was sent at least [`HEARTBEAT`] ago. The caller must ensure that no command is cancelled.
    pub(super) fn write(&mut self, mut commands: Vec<NodeCommand>, now: Time) {
        for command in &mut commands {
            command.write(self.id.node, now, self.peer.can, self.conversation.requests());
        }
        let is_due = self.last_time_command_at.is_none_or(|last| now.since(last) >= HEARTBEAT);
        let has_time = is_due || commands.iter().any(NodeCommand::needs_time);
        self.end_pipeline(commands, has_time, now);
    }

    pub(super) fn write_heartbeat(&mut self, now: Time) {
        self.end_pipeline(Vec::new(), true, now);
    }

    fn end_pipeline(&mut self, commands: Vec<NodeCommand>, has_time: bool, now: Time) {
        if has_time {
            self.last_time_command_at = Some(now);
            append_sync_check(self.conversation.requests());
        }
        self.last_pipeline_len = commands.len();
        let is_isolated = commands.iter().any(NodeCommand::is_isolated);
        self.shared_first = is_isolated;
        let pipeline = Pipeline { commands, written_at: now, has_time, is_isolated };
        self.conversation.end_pipeline(pipeline);
        self.liveness.handle_written(now);
    }

    pub(super) fn to_send(&self) -> &[u8] {
        self.conversation.to_send()
    }

    pub(super) fn handle_sent(&mut self, count: usize) {
        self.conversation.handle_sent(count);
    }

    pub(super) fn conversation(&mut self) -> &mut Conversation<Pipeline> {
        &mut self.conversation
    }

    /// Returns the oldest unanswered pipeline and its replies. Returns `None` if some of the replies have not arrived
    /// yet. After an error, replies can no longer be matched with commands.
    pub(super) fn poll_replies(&mut self) -> Result<Option<(Pipeline, Vec<Value>)>, RedisError> {
        let answered = self.conversation.poll_replies()?;
        if let Some((pipeline, _)) = &answered {
            self.last_answered = self.last_answered.max(pipeline.written_at);
        }
        Ok(answered)
    }

    pub(super) fn take_spare(&mut self) -> Vec<NodeCommand> {
        std::mem::take(&mut self.spare)
    }

    pub(super) fn reuse(&mut self, mut commands: Vec<NodeCommand>, replies: Vec<Value>) {
        commands.clear();
        self.spare = commands;
        self.conversation.reuse(replies);
    }

    /// Records that a pipeline was answered. Returns true if the node was stalled before.
    pub(super) fn handle_reply(&mut self, now: Time) -> bool {
        self.replied_at = Some(now);
        let oldest = self.unanswered_since();
        self.liveness.handle_reply(oldest, now)
    }

    /// Records that more bytes had arrived than the driver reads in one turn. A late reply is then the fault of this
    /// process, not of the node.
    pub(super) fn handle_backlog(&mut self, now: Time) {
        self.yielded_at = None;
        self.liveness.handle_backlog(now);
    }

    pub(super) fn unanswered(&self) -> impl Iterator<Item = &NodeCommand> {
        self.conversation.unanswered().flat_map(|pipeline| &pipeline.commands)
    }

    pub(super) fn take_unanswered(&mut self) -> Vec<NodeCommand> {
        self.conversation.take_unanswered().flat_map(|pipeline| pipeline.commands).collect()
    }

    pub(super) fn next_timeout(&self) -> Time {
        self.yielded_at.unwrap_or_else(|| self.liveness.next_timeout())
    }

    /// Returns the action that the connection needs at `now`, if any. [`Action::Yield`] is handled here and never
    /// returned: before the node counts as stalled, the driver must read the connection once more. `was_read` is true
    /// if the driver has read the connection since the previous call.
    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        is_quorum_silent: bool,
        was_read: bool,
    ) -> Option<Action> {
        if self.yielded_at.is_some() && !was_read {
            return None;
        }
        if let Some(since) = self.yielded_at.take() {
            self.liveness.handle_yielded(now.since(since), now);
        } else if now >= self.liveness.next_timeout() {
            self.liveness.handle_timeout(self.liveness.next_timeout(), now);
        }
        match self.liveness.poll(now, is_quorum_silent) {
            Some(Action::Yield) => {
                self.yielded_at = Some(now);
                None
            }
            action => action,
        }
    }
}
