//! Many seeds, on all cores.

use crate::counts::Counts;
use crate::mode::Mode;
use crate::mutation::Mutation;
use crate::world::run;
use std::ops::Range;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Seeds that a thread takes at a time.
const PORTION: u64 = 64;

/// What many runs came to.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// How many seeds were played.
    pub seeds: u64,
    /// Seeds with a violation.
    pub violations: u64,
    /// The lowest seed with one, and what it was.
    pub first: Option<(u64, String)>,
    /// How often a client began to hold while another did.
    pub overlaps: u64,
    /// How often a token was not higher than that of a lease which had been handed out before.
    pub disorders: u64,
    /// The sum of all counts.
    pub counts: Counts,
    /// The sum of all hashes, which does not depend on the order.
    pub hash: u64,
}

impl Sweep {
    fn add(&mut self, seed: u64, mode: Mode, mutation: Option<Mutation>) {
        self.seeds += 1;
        // The reason of a panic is on the standard error.
        let Ok(outcome) = catch_unwind(|| run(seed, mode, mutation, false)) else {
            self.violations += 1;
            self.note_first(seed, "a panic".into());
            return;
        };
        self.overlaps += outcome.overlaps;
        self.disorders += outcome.disorders;
        self.counts += &outcome.counts;
        self.hash = self.hash.wrapping_add(outcome.hash ^ seed);
        if let Some(what) = outcome.violation {
            self.violations += 1;
            self.note_first(seed, what);
        }
    }

    fn note_first(&mut self, seed: u64, what: String) {
        if self.first.as_ref().is_none_or(|(first, _)| seed < *first) {
            self.first = Some((seed, what));
        }
    }

    fn merge(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.violations += other.violations;
        self.overlaps += other.overlaps;
        self.disorders += other.disorders;
        self.counts += &other.counts;
        self.hash = self.hash.wrapping_add(other.hash);
        if let Some((seed, what)) = other.first {
            self.note_first(seed, what);
        }
    }
}

/// Plays all `seeds`; those above the first violation are left out if it `stops` there.
pub fn sweep(seeds: Range<u64>, mode: Mode, mutation: Option<Mutation>, stops: bool) -> Sweep {
    let next = AtomicU64::new(seeds.start);
    let end = AtomicU64::new(seeds.end);
    let work = || {
        let mut sweep = Sweep::default();
        loop {
            let from = next.fetch_add(PORTION, Ordering::Relaxed);
            let to = (from + PORTION).min(end.load(Ordering::Relaxed));
            if from >= to {
                return sweep;
            }
            for seed in from..to {
                sweep.add(seed, mode, mutation);
                if stops && sweep.violations > 0 {
                    end.fetch_min(from, Ordering::Relaxed);
                    break;
                }
            }
        }
    };
    let mut sum = Sweep::default();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            match thread.join() {
                Ok(part) => sum.merge(part),
                Err(panic) => resume_unwind(panic),
            }
        }
    });
    sum
}
