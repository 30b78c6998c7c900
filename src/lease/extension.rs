//! Extensions of a lease: counting the votes, and repairing nodes that lost the keys.

use super::state::LeaseState;
use crate::node::{QueuedCommand, VoteSink};
use crate::protocol::{NodeId, Outcome, Tenure, Time, Vote};
use crate::round::Tally;
use crate::wire::Answer;
use std::sync::{Arc, Weak};

/// The reason of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The holder requested it and waits for it.
    Asked,
    /// A scheduled renewal.
    Upkeep,
    /// A check: a key changed, or a node's clock stepped.
    Check,
}

pub(crate) struct Extension {
    pub(crate) tally: Arc<Tally>,
    pub(crate) close_at: Time,
    pub(crate) state: Weak<LeaseState>,
    /// T1 + ttl: nodes that grant the extension keep the keys until then.
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
        // The round is won, so a majority holds the key: repair the nodes that lost it. Not after a
        // loss of the lease.
        let (outcome, missing) = self.tally.with_round(|round| (round.outcome(), round.missing()));
        let is_held = matches!(state.tenure(), Tenure::Held { .. });
        if is_held && outcome == Some(Outcome::Won) && (decided.is_some() || is_missing) {
            // Without access, the lease is being released.
            let Some((backing, nodes)) = state.access() else { return };
            for lost in backing.quorum.ids().filter(|id| missing.contains(*id)) {
                if decided.is_some() || lost == node {
                    nodes.send(lost, QueuedCommand::repair(state.claim().clone(), self.until));
                }
            }
        }
    }
}
