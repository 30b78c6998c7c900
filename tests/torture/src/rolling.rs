//! Restarts of nodes, one after the other, each of which comes back empty.
//!
//! What is promised: no two holders, as long as a client that comes new can reach one node that it
//! sees to be old. So one node, the witness, is not restarted and not broken until every lock has
//! ended that the others may have forgotten.

use crate::nemesis::{Kind, TERM};
use crate::room::{Break, Target};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use std::time::Duration;

/// From how long to how long it takes from the first restart to the last. No lock that nobody extends
/// stands longer than the longest ttl; and one that is extended is put back where it was forgotten.
const SPAN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(1_600));
/// A restart takes time, too.
const MARGIN: Duration = Duration::from_millis(500);

/// Which nodes are restarted, and when.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rolling {
    /// The nodes, in order.
    pub(crate) nodes: Vec<u16>,
    /// The one that is left in peace; `None` outside the promise.
    pub(crate) witness: Option<u16>,
    /// From one restart to the next.
    pub(crate) gap: Duration,
}

impl Rolling {
    /// One inside the promise, of these nodes: all but the witness, or a few less, but a majority
    /// where so many can be had. A node that is trusted to keep its data is not made to lose it.
    pub(crate) fn inside(rng: &mut StdRng, nodes: u16, is_trusted: impl Fn(u16) -> bool) -> Self {
        let (kept, mut others): (Vec<_>, Vec<_>) = (0..nodes).partition(|node| is_trusted(*node));
        let witness = if kept.is_empty() {
            others.swap_remove(rng.random_range(0..others.len()))
        } else {
            kept[rng.random_range(0..kept.len())]
        };
        Self { witness: Some(witness), ..Self::of(rng, others, nodes) }
    }

    /// One outside the promise: of any nodes, also of all.
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

    /// How long it is from the first restart to the last.
    pub(crate) fn span(&self) -> Duration {
        self.gap * gaps(&self.nodes)
    }

    /// How long it lasts, with the time until nothing is left that was forgotten.
    pub(crate) fn lasts(&self) -> Duration {
        self.span() + self.settles()
    }

    /// How long it takes after the last restart.
    pub(crate) fn settles(&self) -> Duration {
        if self.witness.is_some() { TERM + MARGIN } else { Duration::ZERO }
    }

    /// Who takes part in it.
    pub(crate) fn claims(&self) -> Vec<Break> {
        let restarted = self.nodes.iter().map(|node| (Target::Node(*node), Kind::Rolling));
        let witness = self.witness.map(|node| (Target::Node(node), Kind::Witness));
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
    fn most_nodes_are_restarted_but_never_the_witness_nor_one_that_is_trusted() {
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
    fn outside_it_can_be_all() {
        let rng = &mut StdRng::seed_from_u64(1);
        let counts: BTreeSet<_> =
            (0..100).map(|_| Rolling::outside(rng, 3)).map(|one| one.nodes.len()).collect();
        assert_eq!(counts, [1, 2, 3].into());
    }

    #[test]
    fn it_lasts_until_the_last_node_that_was_restarted_is_old() {
        let rolling = Rolling { nodes: vec![2, 0], witness: Some(1), gap: Duration::from_secs(1) };
        assert!(rolling.lasts() > Duration::from_secs(1) + TERM);
        let witness = (Target::Node(1), Kind::Witness);
        assert_eq!(rolling.claims()[2], witness);
        let outside = Rolling { witness: None, ..rolling };
        assert_eq!(outside.lasts(), Duration::from_secs(1));
    }
}
