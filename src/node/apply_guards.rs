//! What a node's answer is worth: what it tells of the node's memory and clock, and whether that
//! lets it count.

use super::peer::Peer;
use super::queued_command::QueuedCommand;
use super::shared::NodeShared;
use crate::observe::{NodeState, VoteEligibility};
use crate::protocol::{Reading, Time};
use crate::sync::contain;
use crate::wire::{Answer, Grant, NodeFailure, ServerInfo};
use std::time::Duration;

/// When the replies to a pipeline were read, and from when on what they grant counts.
#[derive(Clone, Copy)]
pub(super) struct Received {
    pub(super) at: Time,
    counts_from: Time,
}

impl NodeShared {
    /// A connection was made, and set up.
    pub(super) fn handle_set_up(&self, peer: &Peer) {
        let now = self.now();
        self.read_clock(peer.reading, now);
        self.guard.handle_set_up(self.id, &peer.info, peer.asked, now);
    }

    /// Takes replies that were read at `at`. If they were `sealed`, written at that time of ours with a
    /// `TIME` behind them, the node's clock showed `time` then, or it does not tell.
    pub(super) fn receive(&self, sealed: Option<Time>, time: Option<u64>, at: Time) -> Received {
        let Some(sent) = sealed else { return Received { at, counts_from: at } };
        self.read_clock(time.map(|shown_us| Reading { sent, shown_us, received: at }), at)
    }

    fn read_clock(&self, reading: Option<Reading>, at: Time) -> Received {
        let Some(reading) = reading else {
            // `TIME` is not permitted (any more): earlier readings still hold.
            return Received { at, counts_from: at.after(self.clocks.lag(self.id, at)) };
        };
        let result = self.clocks.handle_reading(self.id, reading);
        if let Some(ahead) = result.ahead {
            contain(|| self.pushes.handle_step(self.id, ahead, at));
        }
        Received { at, counts_from: result.counts_from }
    }

    /// The vote that is cast for `answer` to `command`, which has just come.
    pub(super) fn apply_guards(
        &self,
        command: &QueuedCommand,
        answer: Answer,
        received: Received,
    ) -> Answer {
        let now = received.at;
        self.learn(command, &answer, now);
        let Answer::Granted(grant) = answer else { return answer };
        let excluded = if command.is_acquire() {
            self.exclusion(now)
        } else if command.is_extension() {
            self.clocks.failure(self.id, now)
        } else {
            None
        };
        match excluded {
            Some(failure) => Answer::Excluded(failure),
            None => self.deferred(command, grant, received),
        }
    }

    /// I15: a lock that was free is not had before its former holder's time is over, also where the
    /// node's clock has stepped ahead. One that was taken over, or is ours already, was free of others.
    fn deferred(&self, command: &QueuedCommand, grant: Grant, received: Received) -> Answer {
        let Received { at, counts_from } = received;
        if !command.is_plain_acquire() || counts_from <= at {
            return Answer::Granted(grant);
        }
        if command.kept_until(self.clocks.drift).is_none_or(|until| counts_from >= until) {
            let ahead = counts_from.since(at);
            return Answer::Excluded(NodeFailure::Suspect { ahead, counts_in: ahead });
        }
        Answer::Granted(Grant { counts_from: Some(counts_from), ..grant })
    }

    /// Notes what the node has promised, and whether it kept what it had promised before.
    fn learn(&self, command: &QueuedCommand, answer: &Answer, now: Time) {
        let (claim, node) = (command.claim(), self.id);
        match answer {
            Answer::Granted(_) => match command.kept_until(self.clocks.drift) {
                Some(until) => claim.note_kept(node, until),
                None if command.is_release() => _ = claim.forget_kept(node),
                None => {}
            },
            Answer::Missing { .. } if command.is_extension() || command.is_first_release() => {
                // Redis truncates a TTL to milliseconds.
                if claim
                    .forget_kept(node)
                    .is_some_and(|until| until > now.after(Duration::from_millis(1)))
                {
                    self.guard.handle_missing(node, now);
                }
            }
            Answer::Denied(_) if command.is_extension() => _ = claim.forget_kept(node),
            Answer::Missing { .. }
            | Answer::Denied(_)
            | Answer::Excluded(_)
            | Answer::Failed(_) => {}
        }
    }

    /// Each node's failure for the restart guard, if new connections reached `servers`. Leaves the guard as it is.
    pub(crate) fn preview_guard(&self, servers: &[Option<ServerInfo>]) -> Vec<Option<NodeFailure>> {
        self.guard.preview(servers, self.now())
    }

    /// Whether what this node grants counts now, if this is its state.
    pub(crate) fn eligibility(&self, state: &NodeState) -> VoteEligibility {
        let now = self.now();
        if let Some((up_for, counts_in)) = self.guard.recent_start(self.id, now) {
            return VoteEligibility::RecentStart { up_for, counts_in };
        }
        if let Some(failure) = self.exclusion(now) {
            return VoteEligibility::Excluded(failure);
        }
        if *state != NodeState::Up {
            return VoteEligibility::Unavailable;
        }
        let lag = self.clocks.lag(self.id, now);
        if lag.is_zero() { VoteEligibility::Counted } else { VoteEligibility::Deferred { lag } }
    }

    /// Why what this node grants does not count now.
    fn exclusion(&self, now: Time) -> Option<NodeFailure> {
        let forgot = self.guard.failure(self.id, now);
        forgot.or_else(|| self.clocks.failure(self.id, now))
    }
}

#[cfg(test)]
#[path = "apply_guards_tests.rs"]
mod tests;
