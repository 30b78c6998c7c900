//! Rolling restarts: nodes are restarted one after the other, each without its data.
//!
//! Mutual exclusion is guaranteed if every new client can reach one node that has visibly been
//! running for long enough. This node is the witness. Therefore, the witness has no restart and no
//! fault until every lock that the other nodes may have lost has ended.

use crate::admission::{Claim, Target};
use crate::nemesis::{QUARANTINE, TargetClass};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use std::time::Duration;

/// The minimum and maximum time from the first restart to the last. The maximum is shorter than the
/// longest TTL. Over a longer time, locks would either expire or be extended, and an extension
/// restores a lock on the nodes that lost it.
const SPAN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(1_600));
/// An allowance for the duration of a restart.
const MARGIN: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rolling {
    pub(crate) nodes: Vec<u16>,
    /// The node that is not restarted, or `None` outside the guarantee.
    pub(crate) witness: Option<u16>,
    pub(crate) gap: Duration,
}

impl Rolling {
    /// Draws a rolling restart within the guarantee. The restarted nodes are a majority if
    /// possible, and never include the witness. A node that is trusted to keep its data never
    /// restarts without data.
    pub(crate) fn inside(rng: &mut StdRng, nodes: u16, is_trusted: impl Fn(u16) -> bool) -> Self {
        let (kept, mut others): (Vec<_>, Vec<_>) = (0..nodes).partition(|node| is_trusted(*node));
        let witness = if kept.is_empty() {
            others.swap_remove(rng.random_range(0..others.len()))
        } else {
            kept[rng.random_range(0..kept.len())]
        };
        Self { witness: Some(witness), ..Self::of(rng, others, nodes) }
    }

    /// Draws a rolling restart outside the guarantee. It may affect any nodes, even all of them.
    pub(crate) fn outside(rng: &mut StdRng, nodes: u16) -> Self {
        Self::of(rng, (0..nodes).collect(), 0)
    }

    fn of(rng: &mut StdRng, mut from: Vec<u16>, nodes: u16) -> Self {
        from.shuffle(rng);
        let least = usize::from(nodes / 2 + 1).min(from.len());
        from.truncate(rng.random_range(least..=from.len()).max(1));
        let gap = rng.random_range(SPAN.0..=SPAN.1) / gaps(&from).max(1);
        Self { nodes: from, witness: None, gap }
    }

    pub(crate) fn span(&self) -> Duration {
        self.gap * gaps(&self.nodes)
    }

    /// Returns the duration of the fault, including the time until all lost locks have ended.
    pub(crate) fn lasts(&self) -> Duration {
        self.span() + self.settles()
    }

    /// Returns the time from the last restart until all lost locks have ended.
    pub(crate) fn settles(&self) -> Duration {
        if self.witness.is_some() { QUARANTINE + MARGIN } else { Duration::ZERO }
    }

    pub(crate) fn claims(&self) -> Vec<Claim> {
        let restarted = self.nodes.iter().map(|node| (Target::Node(*node), TargetClass::Rolling));
        let witness = self.witness.map(|node| (Target::Node(node), TargetClass::Witness));
        restarted.chain(witness).collect()
    }
}

fn gaps(nodes: &[u16]) -> u32 {
    u32::try_from(nodes.len().saturating_sub(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use std::collections::BTreeSet;

    #[test]
    fn witness_and_trusted_nodes_are_not_restarted() {
        let rng = &mut StdRng::seed_from_u64(1);
        let (mut counts, mut witnesses) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..100 {
            let rolling = Rolling::inside(rng, 5, |_| false);
            let distinct: BTreeSet<_> = rolling.nodes.iter().chain(&rolling.witness).collect();
            assert_eq!(distinct.len(), rolling.nodes.len() + 1);
            assert!((SPAN.0 / 2..=SPAN.1).contains(&rolling.span()), "{:?}", rolling.span());
            counts.insert(rolling.nodes.len());
            witnesses.insert(rolling.witness);

            let mut trusting = Rolling::inside(rng, 3, |node| node == 1);
            trusting.nodes.sort_unstable();
            assert_eq!((trusting.nodes, trusting.witness), (vec![0, 2], Some(1)));
        }
        assert_eq!(counts, [3, 4].into());
        assert_eq!(witnesses.len(), 5);
    }

    #[test]
    fn all_nodes_may_restart_outside_the_guarantee() {
        let rng = &mut StdRng::seed_from_u64(1);
        let counts: BTreeSet<_> =
            (0..100).map(|_| Rolling::outside(rng, 3)).map(|one| one.nodes.len()).collect();
        assert_eq!(counts, [1, 2, 3].into());
    }

    #[test]
    fn duration_includes_quarantine_of_the_last_restart() {
        let rolling = Rolling { nodes: vec![2, 0], witness: Some(1), gap: Duration::from_secs(1) };
        assert!(rolling.lasts() > Duration::from_secs(1) + QUARANTINE);
        let witness = (Target::Node(1), TargetClass::Witness);
        assert_eq!(rolling.claims()[2], witness);
        let outside = Rolling { witness: None, ..rolling };
        assert_eq!(outside.lasts(), Duration::from_secs(1));
    }
}
