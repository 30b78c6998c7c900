//! Selection of nodes by number.

use std::ops::{Bound, RangeBounds};
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// A selection of nodes by number: a single number, a range, or several numbers. Numbers start at
/// 0. See [`Nodes::only`](crate::Nodes::only).
pub trait Which: sealed::Sealed {}

mod sealed {
    pub trait Sealed {
        /// Returns the selected node numbers. `count` is the number of nodes. The result may contain
        /// numbers out of range.
        fn node_numbers(self, count: usize) -> Vec<usize>;
    }
}

/// Converts a range to node numbers. A range that exceeds `count` yields one number that is out of
/// range, which the caller rejects. As for slices, an empty range may start at `count`.
fn within(range: &impl RangeBounds<usize>, count: usize) -> Vec<usize> {
    let first = match range.start_bound() {
        Bound::Included(first) => *first,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    // The caller reports only the first number out of range.
    if first > count {
        return vec![first];
    }
    let most = count.saturating_add(1);
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1).min(most),
        Bound::Excluded(end) => (*end).min(most),
        Bound::Unbounded => count,
    };
    (first..end).collect()
}

macro_rules! ranges {
    ($($range:ty),*) => {$(
        impl Which for $range {}

        impl sealed::Sealed for $range {
            fn node_numbers(self, count: usize) -> Vec<usize> {
                within(&self, count)
            }
        }
    )*};
}

ranges!(Range<usize>, RangeFrom<usize>, RangeFull, RangeInclusive<usize>);
ranges!(RangeTo<usize>, RangeToInclusive<usize>);

impl Which for usize {}

impl sealed::Sealed for usize {
    fn node_numbers(self, _: usize) -> Vec<usize> {
        vec![self]
    }
}

impl<const N: usize> Which for [usize; N] {}

impl<const N: usize> sealed::Sealed for [usize; N] {
    fn node_numbers(self, _: usize) -> Vec<usize> {
        self.to_vec()
    }
}

impl Which for &[usize] {}

impl sealed::Sealed for &[usize] {
    fn node_numbers(self, _: usize) -> Vec<usize> {
        self.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::sealed::Sealed;

    #[test]
    fn which_accepts_numbers_ranges_and_lists() {
        let all = [0, 1, 2, 3, 4];
        assert_eq!((..).node_numbers(5), all);
        assert_eq!((..3).node_numbers(5), all[..3]);
        assert_eq!((..=3).node_numbers(5), all[..=3]);
        assert_eq!((3..).node_numbers(5), all[3..]);
        assert_eq!((1..3).node_numbers(5), all[1..3]);
        assert_eq!((1..=3).node_numbers(5), all[1..=3]);
        assert_eq!(3.node_numbers(5), [3]);
        assert_eq!([3, 1].node_numbers(5), [3, 1]);
        assert_eq!(all[2..].node_numbers(5), all[2..]);
        assert_eq!((5..).node_numbers(5), [0; 0]);
    }

    #[test]
    fn which_with_number_out_of_range_keeps_it() {
        for wrong in
            [(..9).node_numbers(5), (..=5).node_numbers(5), (0..usize::MAX).node_numbers(5)]
        {
            assert_eq!(wrong, [0, 1, 2, 3, 4, 5]);
        }
        assert_eq!((7..9).node_numbers(5), [7]);
        assert_eq!(7.node_numbers(5), [7]);
    }
}
