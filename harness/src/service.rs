//! Checks that clients acquire locks whenever a majority of the nodes is available.
//!
//! The clients have many tasks and compete for more resources than they can hold. While a majority
//! is available, some client therefore acquires a lock every few milliseconds. A node is
//! unavailable during a fault of its process or network, and shortly afterwards. A restarted node
//! also remains unavailable until its grants count towards the quorum again. Clock steps do not
//! make a node unavailable.

use crate::boot;
use crate::record::Hold;
use std::time::Duration;

/// The maximum time without a new lock while a majority is available.
const LONGEST_GAP: Duration = Duration::from_millis(2_500);

/// An interval during which a node is unavailable.
#[derive(Clone, Copy, Debug)]
pub struct Outage {
    node: u16,
    from: u64,
    until: u64,
}

impl Outage {
    /// Creates an outage of `node`. `from` and `until` are in nanoseconds since the start of the
    /// run.
    pub fn new(node: u16, from: u64, until: u64) -> Self {
        Self { node, from, until }
    }
}

/// Determines when a majority of the nodes was available.
pub(crate) struct Availability<'a> {
    pub(crate) nodes: u16,
    /// The start and the end of the checked part of the run.
    pub(crate) span: (u64, u64),
    pub(crate) outages: &'a [Outage],
}

/// A period in which no client acquired a lock although a majority of the nodes was available.
/// Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Gap {
    pub(crate) lasts: u64,
    pub(crate) from: u64,
}

impl Availability<'_> {
    pub(crate) fn gaps(&self, holds: &[Hold]) -> Vec<Gap> {
        let mut moments: Vec<_> = holds.iter().map(|hold| hold.from).collect();
        // `is_due` can change only at the start or the end of an outage.
        for Outage { from, until, .. } in self.outages {
            moments.extend([*from, *until]);
        }
        moments.extend([self.span.0, self.span.1]);
        moments.retain(|moment| (self.span.0..=self.span.1).contains(moment));
        moments.sort_unstable();
        let mut begun: Vec<_> = holds.iter().map(|hold| hold.from).collect();
        begun.sort_unstable();
        let mut gaps = Vec::new();
        let mut gap = Gap { lasts: 0, from: self.span.0 };
        for pair in moments.windows(2) {
            let (from, until) = (pair[0], pair[1]);
            if gap.lasts == 0 {
                gap.from = from;
            }
            let is_due = self.is_due(from + (until - from) / 2);
            gap.lasts += if is_due { until - from } else { 0 };
            if !is_due || begun.binary_search(&until).is_ok() || until == self.span.1 {
                gaps.push(std::mem::take(&mut gap));
            }
        }
        gaps.sort_unstable();
        gaps
    }

    fn is_due(&self, at: u64) -> bool {
        let is_out = |node: u16| {
            let mut all = self.outages.iter();
            all.any(|one| one.node == node && one.from <= at && at <= one.until)
        };
        let unavailable = (0..self.nodes).filter(|node| is_out(*node)).count();
        unavailable <= usize::from((self.nodes - 1) / 2)
    }
}

impl Gap {
    /// Describes the gap if it is longer than [`LONGEST_GAP`]. Returns `None` for a shorter gap,
    /// which is no finding.
    pub(crate) fn finding(self) -> Option<String> {
        let [lasts, from] = [self.lasts, self.from].map(Duration::from_nanos);
        let is_long = self.lasts > boot::nanos(LONGEST_GAP);
        is_long.then(|| format!("no lock was acquired for {lasts:?} from {from:?} on"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn hold(from: u64) -> Hold {
        Hold::released(0, from, from + 1)
    }

    fn longest(nodes: u16, outages: &[Outage], begun: &[u64]) -> Gap {
        let holds: Vec<_> = begun.iter().map(|from| hold(from * SECOND)).collect();
        let availability = Availability { nodes, span: (SECOND, 20 * SECOND), outages };
        *availability.gaps(&holds).last().expect("the part has a length")
    }

    fn outage(node: u16, from: u64, until: u64) -> Outage {
        Outage::new(node, from * SECOND, until * SECOND)
    }

    fn gap(lasts: u64, from: u64) -> Gap {
        Gap { lasts: lasts * SECOND, from: from * SECOND }
    }

    #[test]
    fn gap_lasts_from_one_lock_to_the_next_or_to_the_end() {
        assert_eq!(longest(3, &[], &[2, 5, 9, 19]), gap(10, 9));
        assert_eq!(longest(3, &[], &[8, 14, 19]), gap(7, 1));
        assert_eq!(longest(3, &[], &[5, 10]), gap(10, 10));
        assert_eq!(longest(3, &[], &[]), gap(19, 1));
    }

    #[test]
    fn gap_does_not_count_outages_of_a_majority() {
        let begun = [4, 8, 12, 16];
        assert_eq!(
            longest(3, &[outage(0, 8, 16)], &[8, 16]),
            gap(8, 8),
            "a minority is unavailable"
        );
        let two = [outage(0, 5, 20), outage(1, 11, 20)];
        assert_eq!(longest(3, &two, &[3, 5]), gap(6, 5), "six seconds of fifteen");
        assert_eq!(longest(1, &[outage(0, 1, 20)], &begun).lasts, 0);
        let same = [outage(0, 8, 16), outage(0, 8, 16)];
        assert_eq!(longest(3, &same, &[8, 16]), gap(8, 8), "two outages of the same node");
    }

    #[test]
    fn only_long_gaps_are_findings() {
        assert_eq!(gap(2, 7).finding(), None);
        let finding = gap(3, 7).finding().expect("it is too long");
        assert_eq!(finding, "no lock was acquired for 3s from 7s on");
    }
}
