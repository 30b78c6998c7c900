//! An extension of a lease, under way.

use super::state::LeaseState;
use crate::node::{QueuedCommand, VoteSink};
use crate::protocol::{NodeId, Outcome, Tenure, Time, Vote};
use crate::round::Tally;
use crate::wire::Answer;
use std::sync::{Arc, Weak};

/// What an extension is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The holder asked for it, and waits.
    Asked,
    /// It is time for it.
    Upkeep,
    /// Something happened to the key, or to its time.
    Check,
}

/// An extension under way.
pub(crate) struct Extension {
    pub(crate) tally: Arc<Tally>,
    pub(crate) close_at: Time,
    pub(crate) state: Weak<LeaseState>,
    /// T1 + ttl: until when the nodes that grant it keep the key.
    pub(crate) until: Time,
    pub(crate) cause: Cause,
}

impl VoteSink for Extension {
    fn handle_answer(&self, node: NodeId, answer: Answer, at: Option<Time>) {
        let (is_missing, is_granted) =
            (answer.vote() == Vote::Missing, answer.vote() == Vote::Granted);
        let decided = self.tally.count_answer(node, answer, at);
        let Some(state) = self.state.upgrade() else { return };
        if is_granted && decided.is_none() {
            state.handle_grant(node);
        }
        if decided.is_some() {
            match self.cause {
                Cause::Asked => {}
                Cause::Upkeep => state.settle_upkeep(self),
                Cause::Check => state.settle_check(self),
            }
        }
        // The vote is over, and a majority holds the key: nodes that lost it get it back. Not once
        // the lease is known to be lost.
        let (outcome, missing) = self.tally.with_round(|round| (round.outcome(), round.missing()));
        let is_held = matches!(state.tenure(), Tenure::Held { .. });
        if is_held && outcome == Some(Outcome::Won) && (decided.is_some() || is_missing) {
            // It is being given up.
            let Some((backing, nodes)) = state.access() else { return };
            for lost in backing.quorum.ids().filter(|id| missing.contains(*id)) {
                if decided.is_some() || lost == node {
                    nodes.send(lost, QueuedCommand::repair(state.claim().clone(), self.until));
                }
            }
        }
    }
}
