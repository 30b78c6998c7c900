//! Runs many seeds on several threads.

use crate::counts::Counts;
use crate::mode::Mode;
use crate::rule::Rule;
use crate::run::run;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// The results of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// The number of seeds.
    pub seeds: u64,
    /// The violations in the order of their seeds. Each has a seed, a rule and a description.
    pub findings: Vec<(u64, Rule, String)>,
    /// The number of calls to the library.
    pub calls: u64,
    /// The number of acquired locks.
    pub grants: u64,
    /// The number of planned faults.
    pub faults: u64,
    /// The number of runs in which two leases of a resource were valid at the same time, and the
    /// total number of such pairs of leases.
    pub overlaps: (u64, u64),
    /// The number of runs with a token out of order, and the total number of tokens out of order.
    pub disorders: (u64, u64),
    /// How often the conditions of rules were met.
    pub counts: Counts,
    /// A hash of all events. It does not depend on how the seeds are distributed among the threads.
    pub hash: u64,
}

/// Adds a run in which an anomaly occurred `often` times. The pair consists of the number of
/// affected runs and the total number of anomalies.
fn add((runs, times): &mut (u64, u64), often: u64) {
    *runs += u64::from(often > 0);
    *times += often;
}

/// Runs `seeds` on `threads` threads. If `ends_early` is true, stops after the first violation.
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
                    all.counts.add_all(&outcome.counts);
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
