//! All chance of one run, from one seed.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

/// A generator that is the same on every platform and in every version.
pub(crate) struct Dice(Xoshiro256PlusPlus);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Evenly from 0 to `end`, without it; 0 if there is nothing.
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

    /// As often of each size between `from` and `to`: the short ones are as likely as the long.
    pub(crate) fn of_any_size(&mut self, from: u64, to: u64) -> u64 {
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
