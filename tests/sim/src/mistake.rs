//! What clients with a mutation do with rounds of acquire.

use crate::client::{Attempt, Task};
use crate::mutation::Mutation;
use crate::node::Answer;
use crate::protocol::{Goal, Next, NodeId, Outcome, Time};
use crate::world::World;

impl World {
    /// A vote for an attempt that was given up: nobody counts it.
    pub(crate) fn count_late_grant(&mut self, client: usize, node: NodeId, answer: Answer) {
        let now = self.local(client);
        let quorum = self.quorum();
        let it = &mut self.clients[client];
        let attempt = it.given_up.as_mut().expect("it has the vote's round");
        attempt.round.handle_vote(node, answer.vote, now);
        if self.scenario.has(Mutation::LateVotesWin)
            && matches!(it.task, Task::Thinking | Task::Resting)
            && quorum.reached(attempt.round.granted().len())
            && let Goal::Acquire { valid_until } = attempt.round.goal()
            && now < valid_until
        {
            let attempt = it.given_up.take().expect("it was just there");
            self.hold(client, &attempt, valid_until);
        }
    }

    /// What a client with a mutation makes of it.
    pub(crate) fn misjudge(&self, next: Next, attempt: &Attempt, now: Time) -> Next {
        let (ttl, round) = (self.scenario.ttl, &attempt.round);
        let Goal::Acquire { valid_until } = round.goal() else { return next };
        let validity = ttl.as_duration().saturating_sub(self.scenario.drift.allowance(ttl));
        let is_won = matches!(round.outcome(), Some(Outcome::Won | Outcome::TooLate));
        let (granted, answered) = (round.granted().len(), round.votes().len());
        match self.scenario.mutation {
            Some(Mutation::ValidFromReply) if is_won => {
                let valid_until = attempt.first_reply.unwrap_or(now).after(validity);
                if now < valid_until { Next::Lease { valid_until, token: None } } else { next }
            }
            // It takes it for good for as long as a piece of work takes.
            Some(Mutation::LateWin) if is_won && now >= valid_until => {
                Next::Lease { valid_until: now.after(ttl.as_duration() / 4), token: None }
            }
            Some(Mutation::QuorumOfAnswers)
                if 2 * granted > answered && !is_won && now < valid_until =>
            {
                Next::Lease { valid_until, token: None }
            }
            _ => next,
        }
    }
}
