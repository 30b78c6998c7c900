//! Which nodes may not hold the keys of a lease any more, as its threads tell and ask it.

use crate::protocol::{NodeId, Quorum, Round, SuspectedLoss};
use crate::round::Tally;
use crate::sync::lock;
use std::sync::{Arc, Mutex};

/// The doubts about one lease.
pub(super) struct Doubts(Mutex<State>);

struct State {
    doubt: SuspectedLoss,
    /// The round that acquired it, until the nodes are asked again: its votes still come in.
    acquired: Option<Arc<Tally>>,
}

impl Doubts {
    pub(super) fn new(quorum: Quorum, acquired: Arc<Tally>) -> Self {
        Self(Mutex::new(State { doubt: SuspectedLoss::new(quorum), acquired: Some(acquired) }))
    }

    /// The nodes are being asked.
    pub(super) fn handle_asked(&self) {
        let acquired = {
            let mut state = lock(&self.0);
            state.doubt.handle_request();
            state.acquired.take()
        };
        drop(acquired);
    }

    /// They were asked in this round, which is decided.
    pub(super) fn handle_outcome(&self, tally: &Tally) {
        let granted = tally.with_round(Round::granted);
        lock(&self.0).doubt.handle_outcome(granted);
    }

    /// `node` has said that it holds the keys.
    pub(super) fn handle_grant(&self, node: NodeId) {
        lock(&self.0).doubt.handle_grant(node);
    }

    /// Something happened to a key on `node`. How many nodes may have lost theirs now.
    pub(super) fn handle_invalidation(&self, node: NodeId) -> usize {
        let mut state = lock(&self.0);
        let acquired = state.acquired.as_ref().map(|tally| tally.with_round(Round::granted));
        state.doubt.handle_invalidation(node, acquired.unwrap_or_default())
    }
}
