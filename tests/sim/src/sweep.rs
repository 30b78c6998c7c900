//! Many seeds, on as many threads as there are processors.

use crate::mode::Mode;
use crate::rule::Rule;
use crate::run::run;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// What came of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// How many were played.
    pub seeds: u64,
    /// Those in which a rule was broken, in their order: seed, rule, how.
    pub findings: Vec<(u64, Rule, String)>,
    /// How many calls there were, locks that were had, and faults.
    pub calls: u64,
    /// Locks that were had.
    pub grants: u64,
    /// Faults that were planned.
    pub faults: u64,
    /// In how many runs two leases were valid at a time, and how often that was in all.
    pub overlaps: (u64, u64),
    /// In how many runs a token was out of order, and how often that was in all.
    pub disorders: (u64, u64),
    /// All that happened, as a number: whichever thread played which seed.
    pub hash: u64,
}

/// Counts a run in which something was so often.
fn add((runs, times): &mut (u64, u64), often: u64) {
    *runs += u64::from(often > 0);
    *times += often;
}

/// Plays `seeds` on `threads`; only to the first in which a rule is broken, if `ends_early`.
pub fn sweep(mode: Mode, seeds: Range<u64>, threads: usize, ends_early: bool) -> Sweep {
    let next = AtomicU64::new(seeds.start);
    let is_over = AtomicBool::new(false);
    let all = Mutex::new(Sweep::default());
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let outcome = run(mode, seed, None, false);
                    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                    all.seeds += 1;
                    all.calls += outcome.calls;
                    all.grants += outcome.grants;
                    all.faults += outcome.faults;
                    add(&mut all.overlaps, outcome.overlaps);
                    add(&mut all.disorders, outcome.disorders);
                    all.hash ^= outcome.hash;
                    if let Some((rule, how)) = outcome.violation {
                        all.findings.push((seed, rule, how));
                        is_over.fetch_or(ends_early, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    all.findings.sort_by_key(|(seed, ..)| *seed);
    all
}
