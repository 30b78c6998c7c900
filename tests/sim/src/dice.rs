//! The random numbers of a run, all derived from one seed.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

/// A random number generator whose output is the same on every platform and with every version of
/// `rand`.
pub(crate) struct Dice(Xoshiro256PlusPlus);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a uniformly distributed number below `end`, or 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        let product = u128::from(self.word()) * u128::from(end);
        u64::try_from(product >> 64).expect("below a word")
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("below a length")
    }

    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from))
    }

    /// Returns a random number between `from` and `to`. All orders of magnitude are equally likely.
    pub(crate) fn log_uniform(&mut self, from: u64, to: u64) -> u64 {
        let octaves = (to / from.max(1)).max(1).ilog2();
        let low = from << self.below(u64::from(octaves) + 1);
        self.between(low, (2 * low).min(to))
    }

    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }
}
