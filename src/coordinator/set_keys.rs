//! The grants of a round that needs a quorum for the same one of several keys.

use crate::protocol::{NodeId, Quorum, Vote};
use std::cmp::Reverse;

/// The keys that nodes have set, and the key whose grants count.
#[derive(Clone, Debug, Default)]
pub(super) struct SetKeys {
    grants: Vec<KeyGrant>,
    /// Number of grants that were counted as votes.
    counted: usize,
    /// `None` while several keys can still reach a quorum.
    chosen: Option<usize>,
}

/// The grant of one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyGrant {
    pub(super) node: NodeId,
    /// Index of the key that the node has set.
    pub(super) key: usize,
    /// Value of the key's fencing counter.
    pub(super) counter: Option<u64>,
}

impl SetKeys {
    pub(super) fn chosen(&self) -> Option<usize> {
        self.chosen
    }

    pub(super) fn handle_grant(&mut self, grant: KeyGrant) {
        self.grants.push(grant);
    }

    /// Returns the index of the key that `node` has set.
    pub(super) fn of(&self, node: NodeId) -> Option<usize> {
        self.grants.iter().find(|grant| grant.node == node).map(|grant| grant.key)
    }

    /// Takes the votes of the granting nodes once it is known which key can reach a quorum: nodes that have set another
    /// key deny. If no key can reach a quorum, the key that most nodes have set is chosen. `silent` is the number of
    /// nodes that have not replied. `is_over` is true if the round ends now.
    pub(super) fn take_votes(
        &mut self,
        quorum: Quorum,
        silent: usize,
        is_over: bool,
    ) -> Vec<(KeyGrant, Vote)> {
        if self.chosen.is_none() {
            let Some((key, count)) = self.most_common() else { return Vec::new() };
            let is_known = is_over || quorum.reached(count) || !quorum.reached(count + silent);
            self.chosen = is_known.then_some(key);
        }
        let Some(chosen) = self.chosen else { return Vec::new() };
        let vote = |key| if key == chosen { Vote::Granted } else { Vote::Denied };
        let counted = std::mem::replace(&mut self.counted, self.grants.len());
        self.grants[counted..].iter().map(|grant| (*grant, vote(grant.key))).collect()
    }

    /// Returns the key that most nodes have set, and the number of these nodes.
    fn most_common(&self) -> Option<(usize, usize)> {
        let count = |key: usize| self.grants.iter().filter(|other| other.key == key).count();
        let counts = self.grants.iter().map(|grant| (count(grant.key), Reverse(grant.key)));
        counts.max().map(|(count, Reverse(key))| (key, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(node: usize, key: usize) -> KeyGrant {
        KeyGrant { node: NodeId::new(node), key, counter: None }
    }

    /// Returns the votes after each reply, and the chosen key. `keys` contains the keys that five nodes set.
    fn votes(keys: [usize; 5]) -> (Vec<usize>, Option<usize>) {
        let mut set_keys = SetKeys::default();
        let mut counts = Vec::new();
        for (node, key) in keys.into_iter().enumerate() {
            set_keys.handle_grant(grant(node, key));
            counts.push(set_keys.take_votes(Quorum::majority(5), 4 - node, false).len());
        }
        (counts, set_keys.chosen())
    }

    #[test]
    fn key_is_chosen_once_no_other_key_can_reach_a_quorum() {
        assert_eq!(votes([1, 1, 1, 1, 2]), (vec![0, 0, 3, 1, 1], Some(1)));
        assert_eq!(votes([2, 2, 1, 1, 1]), (vec![0, 0, 0, 0, 5], Some(1)));
        assert_eq!(votes([0, 1, 2, 3, 3]).1, Some(0), "no quorum is possible after three replies");
    }

    #[test]
    fn nodes_that_set_other_keys_deny() {
        let mut set_keys = SetKeys::default();
        for (node, key) in [(0, 7), (1, 3), (2, 7)] {
            set_keys.handle_grant(grant(node, key));
        }
        let votes = set_keys.take_votes(Quorum::majority(5), 2, true);
        let votes: Vec<_> = votes.into_iter().map(|(_, vote)| vote).collect();
        assert_eq!(votes, [Vote::Granted, Vote::Denied, Vote::Granted]);
    }
}
