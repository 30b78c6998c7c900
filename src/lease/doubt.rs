//! Which nodes may not hold the keys of a lease any more.

use crate::protocol::{NodeId, NodeSet, Round};
use crate::round::Tally;
use std::sync::Arc;

/// What speaks against nodes holding the keys, since they were last asked.
pub(crate) struct Doubt {
    /// They told that something happened to a key.
    touched: NodeSet,
    asked: Asked,
}

/// When they were last asked.
enum Asked {
    /// By the acquire; votes that come late are in its tally.
    Acquire(Arc<Tally>),
    /// Just now.
    UnderWay,
    /// By an extension: these have not said that they hold the keys.
    Extension { unheard: NodeSet },
}

impl Doubt {
    pub(crate) fn after_acquire(tally: Arc<Tally>) -> Self {
        Self { touched: NodeSet::default(), asked: Asked::Acquire(tally) }
    }

    /// They are being asked.
    pub(crate) fn begin() -> Self {
        Self { touched: NodeSet::default(), asked: Asked::UnderWay }
    }

    /// An extension was decided.
    pub(crate) fn handle_outcome(&mut self, tally: &Tally) {
        self.asked = Asked::Extension { unheard: tally.with_round(unheard) };
    }

    /// `node` holds the keys: its vote has come, maybe late.
    pub(crate) fn handle_grant(&mut self, node: NodeId) {
        if let Asked::Extension { unheard } = &mut self.asked {
            let granted = [node].into_iter().collect();
            *unheard = unheard.without(granted);
        }
    }

    /// Something happened to a key on `node`. How many nodes may have lost theirs now.
    pub(crate) fn handle_touch(&mut self, node: NodeId) -> usize {
        self.touched.insert(node);
        let unheard = match &self.asked {
            Asked::Acquire(tally) => tally.with_round(unheard),
            Asked::UnderWay => NodeSet::default(),
            Asked::Extension { unheard } => *unheard,
        };
        self.touched.union(unheard).len()
    }
}

/// The nodes that have not said that they hold the keys.
fn unheard(round: &Round) -> NodeSet {
    round.quorum().ids().collect::<NodeSet>().without(round.granted())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_doubted_until_they_grant_also_late_and_from_a_touch_on() {
        let node = NodeId::new;
        let unheard = [node(1), node(2)].into_iter().collect();
        let mut doubt = Doubt { touched: NodeSet::default(), asked: Asked::Extension { unheard } };
        doubt.handle_grant(node(2));
        assert_eq!(doubt.handle_touch(node(0)), 2, "that and the one that was not heard of");
        assert_eq!(doubt.handle_touch(node(1)), 2);
        let mut asked = Doubt::begin();
        assert_eq!(asked.handle_touch(node(1)), 1, "the others are being asked");
        asked.handle_grant(node(1));
        assert_eq!(asked.handle_touch(node(0)), 2, "a touch may have come after the grant");
    }
}
