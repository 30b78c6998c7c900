//! Requests for the counters of scheduled jobs, which run once per period.

use super::completion::{Completion, TakenPeriod};
use super::slots::RoundId;
use super::state::Coordinator;
use super::votes::{Owner, VoteCounter};
use crate::protocol::{NodeId, PeriodState, Time};
use crate::wire::{Answer, Command, Conflict, Keys, PeriodUpdate, RemainingTtl};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct PeriodRequest {
    /// The keys of the counter and of its record.
    pub(crate) keys: Keys,
    pub(crate) update: Arc<PeriodUpdate>,
    /// How long the request waits for replies.
    pub(crate) timeout: Duration,
}

impl Coordinator {
    /// Starts a request that compares the counter on each node with a period, and stores the period's number if the
    /// request's step requires this. The request ends with [`Completion::Period`] once all nodes have replied, or after
    /// its timeout.
    pub(crate) fn handle_period(&mut self, request: PeriodRequest, now: Time) -> RoundId {
        let PeriodRequest { keys, update, timeout } = request;
        let command = (keys, None, Command::Period(update));
        let call = self.begin_survey(Owner::Period, command, None, timeout, now);
        self.settle(now);
        call
    }

    pub(super) fn complete_period(&mut self, call: RoundId, votes: &VoteCounter, now: Time) {
        let ids = || self.cx.settings.quorum.ids();
        let taken = |node| match votes.refusal(node)? {
            Answer::Denied(Conflict { counter, remaining, record, .. }) => Some(TakenPeriod {
                number: (*counter)?,
                remaining: remaining.map(RemainingTtl::at_most),
                record: record.clone(),
            }),
            _ => None,
        };
        // The counter that was stored first, by a call that is known.
        let taken = ids().filter_map(taken).min_by_key(|it| (it.record.is_none(), it.remaining));
        let is_excluded = |node| matches!(votes.refusal(node), Some(Answer::Excluded(_)));
        let is_lower = |node: &NodeId| votes.has_granted(*node) || is_excluded(*node);
        let state = PeriodState::new(votes.round(), ids().filter(is_lower).count());
        let report = votes.report(self.cx.names(), now);
        self.completions.push_back(Completion::Period { call, state, taken, report });
    }
}
