//! The schedule of faults, which depends only on the seed. Each wave is a group of faults that are applied together.

use super::fault::Fault;
use harness::choice::mix_seeds;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use std::time::Duration;

/// The shortest and longest duration of a fault. The workload's TTLs lie within this range.
const LASTS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// The shortest and longest pause after a wave. In this time, a restarted node regains its vote (after the longest TTL
/// of 2 s, the drift allowance, and one second: 3.04 s). Clients then reconnect to the node within a second.
pub(super) const REST: (Duration, Duration) =
    (Duration::from_millis(4_500), Duration::from_secs(6));

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wave {
    /// Indices into the list of faults.
    pub(super) faults: Vec<usize>,
    pub(super) lasts: Duration,
    pub(super) rest: Duration,
}

/// An endless sequence of waves. Every fault is applied once before any fault is repeated.
pub(super) struct Plan {
    /// The number of each fault's node. A fault without a node gets a unique number, so it can be combined with any
    /// other.
    nodes: Vec<u16>,
    max_faulted: usize,
    /// The faults that have not been applied since this list was last refilled.
    remaining: Vec<usize>,
    rng: StdRng,
}

impl Plan {
    pub(super) fn new(faults: &[Fault], max_faulted: u16, seed: u64) -> Self {
        let others = (1..).map(|other| u16::MAX - other);
        let nodes = faults.iter().zip(others).map(|(fault, other)| fault.node.unwrap_or(other));
        let rng = StdRng::seed_from_u64(mix_seeds(seed, u64::MAX));
        Self { nodes: nodes.collect(), max_faulted: max_faulted.into(), remaining: Vec::new(), rng }
    }
}

impl Iterator for Plan {
    type Item = Wave;

    fn next(&mut self) -> Option<Wave> {
        if self.nodes.is_empty() || self.max_faulted == 0 {
            return None;
        }
        if self.remaining.is_empty() {
            self.remaining = (0..self.nodes.len()).collect();
            self.remaining.shuffle(&mut self.rng);
        }
        let together = self.rng.random_range(1..=self.max_faulted);
        let mut faults: Vec<usize> = Vec::new();
        let nodes = &self.nodes;
        self.remaining.retain(|&one| {
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
        Fault { node, command: "a".to_owned(), mend: "b".to_owned() }
    }

    #[test]
    fn waves_fault_a_minority_and_apply_each_fault_once_per_round() {
        let faults: Vec<_> = (0..20).map(|one| fault(Some(1 + one % 5))).collect();
        for seed in 0..50 {
            let waves: Vec<_> = Plan::new(&faults, 2, seed).take(200).collect();
            let mut sizes = BTreeSet::new();
            for wave in &waves {
                let nodes: BTreeSet<_> = wave.faults.iter().map(|one| faults[*one].node).collect();
                assert_eq!(nodes.len(), wave.faults.len(), "one fault per node");
                sizes.insert(wave.faults.len());
            }
            assert_eq!(sizes, BTreeSet::from([1, 2]));
            let first_round = waves.iter().flat_map(|wave| wave.faults.clone()).take(20);
            assert_eq!(
                first_round.collect::<BTreeSet<_>>().len(),
                20,
                "no fault is repeated before all were applied"
            );
        }
    }

    #[test]
    fn faults_without_node_can_be_applied_together() {
        let faults = vec![fault(None); 3];
        let waves: Vec<_> = Plan::new(&faults, 3, 7).take(50).collect();
        assert!(waves.iter().any(|wave| wave.faults.len() == 3));
    }

    #[test]
    fn plan_depends_only_on_the_seed() {
        let faults: Vec<_> = (1..6).map(|node| fault(Some(node))).collect();
        let waves = |seed| Plan::new(&faults, 2, seed).take(30).collect::<Vec<_>>();
        assert_eq!(waves(3), waves(3));
        assert_ne!(waves(3), waves(4));
    }

    #[test]
    fn plan_without_faults_is_empty() {
        assert_eq!(Plan::new(&[], 2, 1).next(), None);
        assert_eq!(Plan::new(&[fault(None)], 0, 1).next(), None);
    }
}
