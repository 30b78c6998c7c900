//! Reduces a failing run to the calls and faults that the failure needs.

use crate::mode::Mode;
use crate::rule::Rule;
use crate::run::{Parts, run};

const MOST_RUNS: u32 = 2_000;

/// Finds a small part of a run that still violates `rule`. The search omits ever shorter ranges of
/// calls and faults, down to single ones.
pub fn shrink(mode: Mode, seed: u64, rule: Rule) -> Parts {
    let mut parts = Parts::of(mode, seed);
    let mut runs = 0;
    let mut breaks = |parts: &Parts| {
        runs += 1;
        let outcome = run(mode, seed, Some(parts), false);
        runs <= MOST_RUNS && outcome.violation.is_some_and(|(violated, _)| violated == rule)
    };
    loop {
        let before = parts.len();
        parts.faults = cut(parts.faults.clone(), &mut |faults| {
            breaks(&Parts { faults: faults.to_vec(), ..parts.clone() })
        });
        parts.calls = cut(parts.calls.clone(), &mut |calls| {
            breaks(&Parts { calls: calls.to_vec(), ..parts.clone() })
        });
        if parts.len() == before {
            return parts;
        }
    }
}

/// Omits as many elements of `all` as possible while `fails` still returns true.
fn cut(mut all: Vec<usize>, fails: &mut impl FnMut(&[usize]) -> bool) -> Vec<usize> {
    let mut stretch = all.len();
    while stretch > 0 {
        let mut from = 0;
        while from < all.len() {
            let end = (from + stretch).min(all.len());
            let rest: Vec<_> = all[..from].iter().chain(&all[end..]).copied().collect();
            if fails(&rest) {
                all = rest;
            } else {
                from = end;
            }
        }
        stretch /= 2;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_keeps_only_the_needed_elements() {
        let mut tries = 0;
        let left = cut((0..100).collect(), &mut |parts| {
            tries += 1;
            [3, 41, 97].iter().all(|needed| parts.contains(needed))
        });
        assert_eq!(left, [3, 41, 97]);
        assert!(tries < 100, "{tries} tries");
        assert_eq!(cut(vec![1, 2], &mut |_| true), []);
        assert_eq!(cut(vec![1, 2], &mut |_| false), [1, 2]);
    }
}
