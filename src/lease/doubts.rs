//! The nodes that may have lost a lease's keys: [`SuspectedLoss`] behind a mutex.

use crate::protocol::{NodeId, Quorum, Round, SuspectedLoss};
use crate::round::Tally;
use crate::sync::lock;
use std::sync::{Arc, Mutex};

pub(super) struct Doubts(Mutex<State>);

struct State {
    doubt: SuspectedLoss,
    /// The round of the acquire, until the next request: its late votes still count as grants.
    acquired: Option<Arc<Tally>>,
}

impl Doubts {
    pub(super) fn new(quorum: Quorum, acquired: Arc<Tally>) -> Self {
        Self(Mutex::new(State { doubt: SuspectedLoss::new(quorum), acquired: Some(acquired) }))
    }

    /// A request is being sent to the nodes.
    pub(super) fn handle_asked(&self) {
        let acquired = {
            let mut state = lock(&self.0);
            state.doubt.handle_request();
            state.acquired.take()
        };
        drop(acquired);
    }

    /// The round of the request, in `tally`, was decided.
    pub(super) fn handle_outcome(&self, tally: &Tally) {
        let granted = tally.with_round(Round::granted);
        lock(&self.0).doubt.handle_outcome(granted);
    }

    /// `node` replied that it holds the keys.
    pub(super) fn handle_grant(&self, node: NodeId) {
        lock(&self.0).doubt.handle_grant(node);
    }

    /// A key changed on `node`. Returns the number of nodes that may have lost their keys.
    pub(super) fn handle_invalidation(&self, node: NodeId) -> usize {
        let mut state = lock(&self.0);
        let acquired = state.acquired.as_ref().map(|tally| tally.with_round(Round::granted));
        state.doubt.handle_invalidation(node, acquired.unwrap_or_default())
    }
}
