//! Whether locks were to be had whenever they should be.
//!
//! As long as a majority of the nodes is well, somebody gets a lock every few milliseconds: there are
//! many tasks, and more resources than they can all hold. A node is not well while something is done
//! to its process or its wire, a little longer, and after a restart until it counts again. Steps of
//! clocks are no excuse.

use crate::boot;
use crate::record::Hold;
use std::time::Duration;

/// For how long nobody may get a lock that should be had.
const LONGEST: Duration = Duration::from_millis(2_500);

/// A time in which a node is not well.
#[derive(Clone, Copy, Debug)]
pub struct Ailment {
    node: u16,
    from: u64,
    until: u64,
}

impl Ailment {
    /// Of a node that was not well between two times.
    pub fn new(node: u16, from: u64, until: u64) -> Self {
        Self { node, from, until }
    }
}

/// When a lock should be had in a part.
pub(crate) struct Service<'a> {
    pub(crate) nodes: u16,
    /// From when to when the part lasted.
    pub(crate) span: (u64, u64),
    pub(crate) ailments: &'a [Ailment],
}

/// A time without a new lock, while one should have been had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Gap {
    pub(crate) lasts: u64,
    pub(crate) from: u64,
}

impl Service<'_> {
    /// The gaps, the longest last.
    pub(crate) fn gaps(&self, holds: &[Hold]) -> Vec<Gap> {
        let mut moments: Vec<_> = holds.iter().map(|hold| hold.from).collect();
        // Where it goes over from due to not due, or back.
        for Ailment { from, until, .. } in self.ailments {
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
        let unwell = |node: u16| {
            let mut all = self.ailments.iter();
            all.any(|one| one.node == node && one.from <= at && at <= one.until)
        };
        let unwell = (0..self.nodes).filter(|node| unwell(*node)).count();
        unwell <= usize::from((self.nodes - 1) / 2)
    }
}

impl Gap {
    /// In words, if it is too long.
    pub(crate) fn complaint(self) -> Option<String> {
        let [lasts, from] = [self.lasts, self.from].map(Duration::from_nanos);
        let is_long = self.lasts > boot::nanos(LONGEST);
        is_long.then(|| format!("no lock was acquired for {lasts:?} from {from:?} on"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::End;

    const SECOND: u64 = 1_000_000_000;

    fn hold(from: u64) -> Hold {
        let (end, until) = (End::Released, from + 1);
        let (resource, client, task, id, token, asked) = (0, 0, 0, 0, None, from);
        Hold { resource, client, task, id, token, asked, from, until, end, is_renewed: false }
    }

    fn longest(nodes: u16, ailments: &[Ailment], begun: &[u64]) -> Gap {
        let holds: Vec<_> = begun.iter().map(|from| hold(from * SECOND)).collect();
        let service = Service { nodes, span: (SECOND, 20 * SECOND), ailments };
        *service.gaps(&holds).last().expect("the part has a length")
    }

    fn ailment(node: u16, from: u64, until: u64) -> Ailment {
        Ailment::new(node, from * SECOND, until * SECOND)
    }

    fn gap(lasts: u64, from: u64) -> Gap {
        Gap { lasts: lasts * SECOND, from: from * SECOND }
    }

    #[test]
    fn a_gap_is_from_one_lock_to_the_next_also_at_the_ends() {
        assert_eq!(longest(3, &[], &[2, 5, 9, 19]), gap(10, 9));
        assert_eq!(longest(3, &[], &[8, 14, 19]), gap(7, 1));
        assert_eq!(longest(3, &[], &[5, 10]), gap(10, 10));
        assert_eq!(longest(3, &[], &[]), gap(19, 1));
    }

    #[test]
    fn a_gap_is_excused_while_no_majority_is_well() {
        let begun = [4, 8, 12, 16];
        assert_eq!(longest(3, &[ailment(0, 8, 16)], &[8, 16]), gap(8, 8), "a minority is ill");
        let two = [ailment(0, 5, 20), ailment(1, 11, 20)];
        assert_eq!(longest(3, &two, &[3, 5]), gap(6, 5), "six seconds of fifteen");
        assert_eq!(longest(1, &[ailment(0, 1, 20)], &begun).lasts, 0);
        let same = [ailment(0, 8, 16), ailment(0, 8, 16)];
        assert_eq!(longest(3, &same, &[8, 16]), gap(8, 8), "one node, in two ways");
    }

    #[test]
    fn only_a_long_gap_is_complained_of() {
        assert_eq!(gap(2, 7).complaint(), None);
        let complaint = gap(3, 7).complaint().expect("it is too long");
        assert_eq!(complaint, "no lock was acquired for 3s from 7s on");
    }
}
