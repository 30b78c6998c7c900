//! Which nodes may not hold the keys of a lease any more.
//!
//! - Events in: [`Doubt::handle_asked`] when the nodes are asked whether they hold them, and
//!   [`Doubt::handle_outcome`] when that is decided; [`Doubt::handle_grant`] when a vote comes later;
//!   [`Doubt::handle_touch`] when a node tells that something happened to a key. It says how many may have
//!   lost theirs by then.
//!
//! Before the first question it is the acquire that has asked. Its votes still come in while the lease is
//! held, so whoever holds them says at each touch which nodes have granted.

use super::quorum::{NodeId, NodeSet, Quorum};

/// What speaks against nodes holding the keys, since they were last asked.
#[derive(Debug)]
pub(crate) struct Doubt {
    quorum: Quorum,
    /// They told that something happened to a key.
    touched: NodeSet,
    asked: Asked,
}

/// When they were last asked.
#[derive(Debug)]
enum Asked {
    ByAcquire,
    UnderWay,
    /// By an extension: these have not said that they hold the keys.
    ByExtension {
        unheard: NodeSet,
    },
}

impl Doubt {
    /// They were asked by the acquire.
    pub(crate) fn new(quorum: Quorum) -> Self {
        Self { quorum, touched: NodeSet::default(), asked: Asked::ByAcquire }
    }

    /// They are being asked.
    pub(crate) fn handle_asked(&mut self) {
        (self.touched, self.asked) = (NodeSet::default(), Asked::UnderWay);
    }

    /// An extension was decided, which these have granted.
    pub(crate) fn handle_outcome(&mut self, granted: NodeSet) {
        self.asked = Asked::ByExtension { unheard: self.all().without(granted) };
    }

    /// `node` holds the keys: its vote has come, maybe late.
    pub(crate) fn handle_grant(&mut self, node: NodeId) {
        if let Asked::ByExtension { unheard } = &mut self.asked {
            let granted = [node].into_iter().collect();
            *unheard = unheard.without(granted);
        }
    }

    /// Something happened to a key on `node`; `acquired` are the nodes that have granted the acquire by
    /// now. How many nodes may have lost theirs.
    pub(crate) fn handle_touch(&mut self, node: NodeId, acquired: NodeSet) -> usize {
        self.touched.insert(node);
        let unheard = match self.asked {
            Asked::ByAcquire => self.all().without(acquired),
            Asked::UnderWay => NodeSet::default(),
            Asked::ByExtension { unheard } => unheard,
        };
        self.touched.union(unheard).len()
    }

    fn all(&self) -> NodeSet {
        self.quorum.ids().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(nodes: &[usize]) -> NodeSet {
        nodes.iter().map(|node| NodeId::new(*node)).collect()
    }

    #[test]
    fn nodes_are_doubted_until_they_grant_also_late_and_from_a_touch_on() {
        let node = NodeId::new;
        let nobody = NodeSet::default();
        let mut doubt = Doubt::new(Quorum::majority(3));
        assert_eq!(doubt.handle_touch(node(0), set(&[0, 1])), 2, "that, and the one not heard of");
        assert_eq!(doubt.handle_touch(node(0), set(&[0, 1, 2])), 1, "it has granted late");
        doubt.handle_asked();
        assert_eq!(doubt.handle_touch(node(1), nobody), 1, "the others are being asked");
        doubt.handle_grant(node(1));
        assert_eq!(doubt.handle_touch(node(0), nobody), 2, "a touch may have come after the grant");
        doubt.handle_asked();
        doubt.handle_outcome(set(&[0]));
        doubt.handle_grant(node(2));
        assert_eq!(
            doubt.handle_touch(node(0), nobody),
            2,
            "that and the one that was not heard of"
        );
        assert_eq!(doubt.handle_touch(node(1), nobody), 2);
    }

    proptest! {
        /// Against the plain rule: touched since it was asked, or asked and not heard of.
        #[test]
        fn a_node_is_doubted_when_it_was_touched_or_not_heard_of(
            story in prop::collection::vec((0..4_u8, 0..5_usize, prop::collection::vec(0..5_usize, 0..5)), 1..40),
        ) {
            let mut doubt = Doubt::new(Quorum::majority(5));
            let (mut touched, mut unheard) = (NodeSet::default(), None);
            for (what, node, granted) in story {
                let (id, granted) = (NodeId::new(node), set(&granted));
                match what {
                    0 => {
                        doubt.handle_asked();
                        (touched, unheard) = (NodeSet::default(), Some(NodeSet::default()));
                    }
                    1 => {
                        doubt.handle_outcome(granted);
                        unheard = Some(set(&[0, 1, 2, 3, 4]).without(granted));
                    }
                    2 => {
                        doubt.handle_grant(id);
                        unheard = unheard.map(|unheard| unheard.without(set(&[node])));
                    }
                    _ => {
                        touched.insert(id);
                        let all = set(&[0, 1, 2, 3, 4]);
                        let doubted = touched.union(unheard.unwrap_or(all.without(granted)));
                        prop_assert_eq!(doubt.handle_touch(id, granted), doubted.len());
                    }
                }
            }
        }
    }
}
