//! Which faults are made together, for how long, and how long the nodes are left in peace then: by the seed alone.

use super::fault::Fault;
use harness::choice::mixed;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use std::time::Duration;

/// How long a fault lasts: less than the shortest ttl of the workload, up to more than its longest.
const LASTS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// How long nothing is done then. A node that was restarted counts again 3.04 s after that: the longest ttl of 2 s and
/// what clocks may drift on it, and a second; and it is found within a second.
pub(super) const REST: (Duration, Duration) =
    (Duration::from_millis(4_500), Duration::from_secs(6));

/// Faults that are made together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wave {
    /// Which of them.
    pub(super) faults: Vec<usize>,
    pub(super) lasts: Duration,
    pub(super) rest: Duration,
}

/// Waves without an end. Each fault has its turn before one comes again.
pub(super) struct Plan {
    /// The node of each fault, as a number of its own.
    nodes: Vec<u16>,
    /// How many nodes are faulted at a time at the most.
    most: usize,
    /// Those whose turn it still is.
    deck: Vec<usize>,
    rng: StdRng,
}

impl Plan {
    /// Of these faults, on at most so many nodes at a time.
    pub(super) fn new(faults: &[Fault], most: u16, seed: u64) -> Self {
        // A fault of a node that is not said is taken to have one of its own.
        let others = (1..).map(|other| u16::MAX - other);
        let nodes = faults.iter().zip(others).map(|(fault, other)| fault.node.unwrap_or(other));
        let rng = StdRng::seed_from_u64(mixed(seed, u64::MAX));
        Self { nodes: nodes.collect(), most: most.into(), deck: Vec::new(), rng }
    }
}

impl Iterator for Plan {
    type Item = Wave;

    fn next(&mut self) -> Option<Wave> {
        if self.nodes.is_empty() || self.most == 0 {
            return None;
        }
        if self.deck.is_empty() {
            self.deck = (0..self.nodes.len()).collect();
            self.deck.shuffle(&mut self.rng);
        }
        let together = self.rng.random_range(1..=self.most);
        let mut faults: Vec<usize> = Vec::new();
        let nodes = &self.nodes;
        self.deck.retain(|&one| {
            let is_free = faults.iter().all(|&other| nodes[other] != nodes[one]);
            let is_chosen = faults.len() < together && is_free;
            if is_chosen {
                faults.push(one);
            }
            !is_chosen
        });
        let lasts = self.rng.random_range(LASTS.0..=LASTS.1);
        let rest = self.rng.random_range(REST.0..=REST.1);
        Some(Wave { faults, lasts, rest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn fault(node: Option<u16>) -> Fault {
        Fault { node, inflict: "a".to_owned(), mend: "b".to_owned() }
    }

    #[test]
    fn a_minority_of_nodes_is_faulted_at_a_time_and_each_fault_has_its_turn() {
        let faults: Vec<_> = (0..20).map(|one| fault(Some(1 + one % 5))).collect();
        for seed in 0..50 {
            let waves: Vec<_> = Plan::new(&faults, 2, seed).take(200).collect();
            let mut sizes = BTreeSet::new();
            for wave in &waves {
                let nodes: BTreeSet<_> = wave.faults.iter().map(|one| faults[*one].node).collect();
                assert_eq!(nodes.len(), wave.faults.len(), "one fault a node");
                sizes.insert(wave.faults.len());
            }
            assert_eq!(sizes, BTreeSet::from([1, 2]));
            let made = waves.iter().flat_map(|wave| wave.faults.clone()).take(20);
            assert_eq!(
                made.collect::<BTreeSet<_>>().len(),
                20,
                "none comes twice before all have come"
            );
        }
    }

    #[test]
    fn faults_of_no_node_are_of_different_ones() {
        let faults = vec![fault(None); 3];
        let waves: Vec<_> = Plan::new(&faults, 3, 7).take(50).collect();
        assert!(waves.iter().any(|wave| wave.faults.len() == 3));
    }

    #[test]
    fn the_seed_alone_decides() {
        let faults: Vec<_> = (1..6).map(|node| fault(Some(node))).collect();
        let waves = |seed| Plan::new(&faults, 2, seed).take(30).collect::<Vec<_>>();
        assert_eq!(waves(3), waves(3));
        assert_ne!(waves(3), waves(4));
    }

    #[test]
    fn without_faults_there_is_no_wave() {
        assert_eq!(Plan::new(&[], 2, 1).next(), None);
        assert_eq!(Plan::new(&[fault(None)], 0, 1).next(), None);
    }
}
