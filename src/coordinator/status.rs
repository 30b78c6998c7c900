//! Status requests and forced releases of a lock.

use super::claim::Claim;
use super::command::NodeCommand;
use super::completion::{Completion, NodeLock};
use super::round_command::RoundCommand;
use super::slots::{ChangeId, RoundId};
use super::state::Coordinator;
use super::survey::Survey;
use super::timeout::Timeout;
use super::votes::{Owner, VoteCounter};
use crate::protocol::{Goal, NodeId, Round, Time};
use crate::wire::{Answer, Command, Conflict, CounterKeys, Counters, Keys, NodeFailure, Value};
use std::sync::Arc;
use std::time::Duration;

impl Coordinator {
    /// Starts a status request, which reads the state of the lock on each node. The request ends with
    /// [`Completion::Status`].
    ///
    /// If `counters` are given, the request also reads the fencing counter, and makes the nodes push the next change of
    /// the key.
    pub(crate) fn handle_status(
        &mut self,
        keys: Keys,
        counters: Option<Arc<CounterKeys>>,
        now: Time,
    ) -> RoundId {
        let command = if counters.is_some() { Command::Observe } else { Command::Read };
        let (timeout, command) = (self.cx.settings.node_timeout, (keys, counters, command));
        let call = self.begin_survey(Owner::Status, command, None, timeout, now);
        self.settle(now);
        call
    }

    /// Starts a forced release, which reads the lock's value on each node and then tries once to delete it. The request
    /// ends with [`Completion::ForceReleased`].
    pub(crate) fn handle_force_release(&mut self, keys: Keys, now: Time) -> RoundId {
        let (timeout, read) = (self.cx.settings.node_timeout, (keys.clone(), None, Command::Read));
        let call = self.begin_survey(Owner::ForcedRelease, read, Some(keys), timeout, now);
        self.settle(now);
        call
    }

    /// Starts a request that ends with [`Completion::Changed`] once one of `keys` may have changed, or once the client
    /// is closed. A node pushes the next change of a key that a status request with counters has read. It sends no push
    /// for a change that this client's own connection makes, so the coordinator also reports the beginning and the end
    /// of this client's leases.
    pub(crate) fn handle_await_change(&mut self, keys: &Keys) -> ChangeId {
        let request = self.changes.insert(keys);
        if self.cx.is_closing {
            self.report_change(None);
        }
        request
    }

    pub(crate) fn handle_cancel_change(&mut self, request: ChangeId) {
        self.changes.remove(request);
    }

    /// Completes the requests that wait for a change of `key`. If `key` is `None`, any key may have changed.
    pub(super) fn report_change(&mut self, key: Option<&[u8]>) {
        let changed = self.changes.take(key).into_iter();
        self.completions.extend(changed.map(|request| Completion::Changed { request }));
    }

    pub(crate) fn handle_cancel_call(&mut self, call: RoundId, now: Time) {
        self.forget_survey(call);
        self.settle(now);
    }

    /// Ends all status requests, requests for a job's counter and forced releases. A closed client has neither
    /// connections nor an alarm, so their rounds would never end.
    pub(super) fn cut_off_surveys(&mut self) {
        while let Some((&call, _)) = self.surveys.first_key_value() {
            self.forget_survey(call);
            self.completions.push_back(Completion::CutOff { call });
        }
    }

    fn forget_survey(&mut self, call: RoundId) {
        if let Some(survey) = self.surveys.remove(&call) {
            survey.claims.iter().for_each(|claim| claim.withdraw());
            self.forget_round(Some(survey.round));
        }
    }

    #[cfg(test)]
    pub(super) fn is_survey(&self, call: RoundId) -> bool {
        self.surveys.contains_key(&call)
    }

    /// Sends `command` to all nodes, in a round that waits for their replies. `deletes` contains the keys that a second
    /// round deletes. After the client was closed, the request ends at once with [`Completion::CutOff`].
    pub(super) fn begin_survey(
        &mut self,
        owner: Owner,
        (keys, counters, command): (Keys, Option<Arc<CounterKeys>>, Command),
        deletes: Option<Keys>,
        timeout: Duration,
        now: Time,
    ) -> RoundId {
        let call = self.insert_survey_round(owner, timeout, now);
        let fence = counters.map(|keys| Counters::new(keys, 0));
        let claim = self.survey_claim(keys, Value::fresh(&self.cx.random), fence);
        self.surveys.insert(call, Survey { round: call, claims: vec![claim.clone()], deletes });
        if self.is_closing() {
            self.cut_off_surveys();
            return call;
        }
        let all = self.cx.settings.quorum.ids().collect();
        self.submit(all, &claim, command, Some(call), now);
        call
    }

    fn insert_survey_round(&mut self, owner: Owner, timeout: Duration, now: Time) -> RoundId {
        let close_at = now.after(timeout);
        let round = Round::new(self.cx.settings.quorum, Goal::Survey);
        let round = self.rounds.insert(VoteCounter::new(owner, round, now, close_at));
        self.set_timeout(close_at, Timeout::Round(round));
        round
    }

    fn survey_claim(&self, keys: Keys, value: Value, fence: Option<Counters>) -> Arc<Claim> {
        let nodes = self.cx.settings.quorum.nodes();
        Arc::new(Claim::new(keys, value, fence, nodes, Time::END))
    }

    /// Once the round is decided, completes a status request, a request for a job's counter or a forced release, or starts
    /// the second round of a forced release. The round is decided when all nodes have voted or the node timeout has
    /// passed. An earlier call has no effect.
    pub(super) fn complete_survey(&mut self, round: RoundId, now: Time) {
        if self.rounds.get(round).is_none_or(|votes| votes.round().outcome().is_none()) {
            return;
        }
        let Some(votes) = self.rounds.remove(round) else { return };
        let call = if let Owner::Deletion { call } = votes.owner { call } else { round };
        let Some(survey) = self.surveys.remove(&call) else { return };
        survey.claims.iter().for_each(|claim| claim.withdraw());
        match (votes.owner, survey.deletes) {
            (Owner::ForcedRelease, Some(keys)) => self.delete_holders(call, &keys, &votes, now),
            (Owner::Deletion { .. }, _) => {
                let report = votes.report(self.cx.names(), now);
                self.completions.push_back(Completion::ForceReleased { call, report });
            }
            (Owner::Period, _) => self.complete_period(call, &votes, now),
            _ => {
                let report = votes.report(self.cx.names(), now);
                let lock = |node: NodeId| NodeLock {
                    answer: votes.refusal(node).cloned(),
                    eligibility: self.nodes[node].eligibility(now, &self.cx),
                };
                let nodes = self.cx.settings.quorum.ids().map(lock).collect();
                self.completions.push_back(Completion::Status { call, nodes, report });
            }
        }
    }

    /// Starts the second round of a forced release, in which each node that reported a value must delete that value.
    /// For the other nodes, the reply to the first round counts again.
    fn delete_holders(&mut self, call: RoundId, keys: &Keys, found: &VoteCounter, now: Time) {
        let timeout = self.cx.settings.node_timeout;
        let round = self.insert_survey_round(Owner::Deletion { call }, timeout, now);
        let mut claims = Vec::new();
        for node in self.cx.settings.quorum.ids() {
            match found.refusal(node) {
                Some(Answer::Denied(Conflict { value: Some(value), .. })) => {
                    let claim = self.survey_claim(keys.clone(), value.clone(), None);
                    claims.push(claim.clone());
                    let command = RoundCommand::new(claim, Command::ForceDelete);
                    let command = NodeCommand::new(Arc::new(command), Some(round));
                    self.nodes.submit(node, command, now, &mut self.cx);
                }
                other => {
                    let late = Answer::Failed(NodeFailure::Timeout(timeout));
                    let answer = other.cloned().unwrap_or(late);
                    if let Some(votes) = self.rounds.get_mut(round) {
                        votes.handle_reply(node, answer, now);
                    }
                }
            }
        }
        self.surveys.insert(call, Survey { round, claims, deletes: None });
        self.complete_survey(round, now);
    }
}
