//! A queue of timeouts, used for acquires, leases and rounds.
//!
//! A timeout that is cancelled or moved stays in the queue. Each method takes a predicate `is_current` and drops the
//! outdated timeouts that it finds.

use crate::protocol::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Minimum number of timeouts at which outdated timeouts are removed from the queue.
const MIN_COMPACTED: usize = 1 << 10;

#[derive(Debug)]
pub(super) struct Timers<K> {
    timeouts: BinaryHeap<Reverse<(Time, K)>>,
    /// Number of timeouts at which outdated timeouts are next removed: at least twice the number that remained after
    /// the last removal.
    compact_at: usize,
}

impl<K: Copy + Ord> Timers<K> {
    pub(super) fn new() -> Self {
        Self { timeouts: BinaryHeap::new(), compact_at: MIN_COMPACTED }
    }

    pub(super) fn set(&mut self, at: Time, key: K, is_current: impl Fn(Time, K) -> bool) {
        if self.timeouts.len() >= self.compact_at {
            self.timeouts.retain(|Reverse((at, key))| is_current(*at, *key));
            self.compact_at = MIN_COMPACTED.max(2 * self.timeouts.len());
        }
        self.timeouts.push(Reverse((at, key)));
    }

    pub(super) fn next(&mut self, is_current: impl Fn(Time, K) -> bool) -> Option<Time> {
        while let Some(Reverse((at, key))) = self.timeouts.peek() {
            if is_current(*at, *key) {
                return Some(*at);
            }
            self.timeouts.pop();
        }
        None
    }

    /// Removes the earliest current timeout and returns its key. Returns `None` if that timeout has not passed at
    /// `now`.
    pub(super) fn pop(&mut self, now: Time, is_current: impl Fn(Time, K) -> bool) -> Option<K> {
        self.next(is_current).filter(|at| *at <= now)?;
        self.timeouts.pop().map(|Reverse((_, key))| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(ms: u64) -> Time {
        Time::default().after(Duration::from_millis(ms))
    }

    #[test]
    fn timeouts_pass_in_order_and_cancelled_ones_are_dropped() {
        let mut timers = Timers::new();
        for (ms, key) in [(30, 'c'), (10, 'a'), (20, 'b')] {
            timers.set(at(ms), key, |_, _| true);
        }
        let is_current = |_: Time, key: char| key != 'a';
        assert_eq!(timers.next(is_current), Some(at(20)));
        assert_eq!(timers.pop(at(19), is_current), None);
        assert_eq!(timers.pop(at(20), is_current), Some('b'));
        assert_eq!(timers.pop(at(90), is_current), Some('c'));
        assert_eq!(timers.next(is_current), None);
    }

    #[test]
    fn moved_timeouts_do_not_accumulate() {
        let mut timers = Timers::new();
        for ms in 0..100_000 {
            timers.set(at(ms), 'a', |when, _| when.after(Duration::from_millis(1)) >= at(ms));
        }
        assert!(timers.timeouts.len() <= 2 * MIN_COMPACTED, "{}", timers.timeouts.len());
    }
}
