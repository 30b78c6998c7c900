//! Requests for the counters of scheduled jobs, which run once per period.

use super::completion::Completion;
use super::slots::RoundId;
use super::state::Coordinator;
use super::votes::{Owner, VoteCounter};
use crate::protocol::{NodeId, PeriodState, Time, Ttl};
use crate::wire::{Answer, Command, Conflict, Keys, PeriodStep, RemainingTtl};

#[derive(Clone, Debug)]
pub(crate) struct PeriodRequest {
    /// The key of the counter.
    pub(crate) counter: Keys,
    pub(crate) number: u64,
    /// The TTL of a raised counter.
    pub(crate) ttl: Ttl,
    pub(crate) step: PeriodStep,
}

impl Coordinator {
    /// Starts a request that compares the counter on each node with the number of a period, and raises it if the
    /// request's step requires this. The request ends with [`Completion::Period`] once all nodes have replied, or after
    /// the node timeout.
    pub(crate) fn handle_period(&mut self, request: PeriodRequest, now: Time) -> RoundId {
        let PeriodRequest { counter, number, ttl, step } = request;
        let command = (counter, None, Command::Period { number, ttl, step });
        let call = self.begin_survey(Owner::Period, command, None, now);
        self.settle(now);
        call
    }

    pub(super) fn complete_period(&mut self, call: RoundId, votes: &VoteCounter, now: Time) {
        let ids = || self.cx.settings.quorum.ids();
        let remaining = |node| match votes.refusal(node) {
            Some(Answer::Denied(Conflict { remaining, .. })) => {
                remaining.map(RemainingTtl::at_most)
            }
            _ => None,
        };
        let is_excluded = |node| matches!(votes.refusal(node), Some(Answer::Excluded(_)));
        let is_lower = |node: &NodeId| votes.has_granted(*node) || is_excluded(*node);
        let (remaining, lower) =
            (ids().filter_map(remaining).min(), ids().filter(is_lower).count());
        let state = PeriodState::new(votes.round(), remaining, lower);
        let report = votes.report(self.cx.names(), now);
        self.completions.push_back(Completion::Period { call, state, report });
    }
}
