//! Random numbers of a run, all from one seed.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

/// Generator with the same output on every platform and in every version.
pub(crate) struct Dice(Xoshiro256PlusPlus);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A uniform number from 0 to `end`, exclusive. 0 if `end` is 0.
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

    /// A number between `from` and `to`, with a uniform order of magnitude.
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
