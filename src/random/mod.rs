//! Sources of randomness for lock values and jitter.
//!
//! This module is the crate's only source of randomness. Other modules take a number or a [`Random`] as a parameter.

#[cfg(feature = "test-util")]
use rand::{Rng, SeedableRng, rngs::StdRng};
#[cfg(feature = "test-util")]
use std::sync::{Arc, Mutex};
use uuid::Uuid;

/// A client's source of randomness. Cheap to clone: clones of a seeded source share its generator.
#[derive(Clone, Default)]
pub(crate) enum Random {
    /// UUIDs from the operating system's generator, and numbers from a thread-local generator.
    #[default]
    Machine,
    /// A seeded generator: the same seed gives the same values in the same order.
    #[cfg(feature = "test-util")]
    Seeded(Arc<Mutex<StdRng>>),
}

impl Random {
    #[cfg(feature = "test-util")]
    pub(crate) fn seeded(seed: u64) -> Self {
        Self::Seeded(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    /// Returns a random number for jitter. The number may be predictable.
    pub(crate) fn number(&self) -> u64 {
        match self {
            Self::Machine => rand::random(),
            #[cfg(feature = "test-util")]
            Self::Seeded(generator) => crate::sync::lock(generator).next_u64(),
        }
    }

    /// Returns a unique random `UUIDv4`, so that every attempt has a fresh value (I7). A UUID from the machine's source
    /// is not predictable.
    pub(crate) fn uuid(&self) -> Uuid {
        match self {
            Self::Machine => Uuid::new_v4(),
            #[cfg(feature = "test-util")]
            Self::Seeded(generator) => {
                let mut bytes = [0; 16];
                crate::sync::lock(generator).fill_bytes(&mut bytes);
                uuid::Builder::from_random_bytes(bytes).into_uuid()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn machine_values_are_unique() {
        let drawn: HashSet<_> = (0..1_000).map(|_| Random::Machine.uuid()).collect();
        assert_eq!(drawn.len(), 1_000);
        assert!(drawn.iter().all(|uuid| uuid.get_version_num() == 4));
        let numbers: HashSet<_> = (0..1_000).map(|_| Random::Machine.number()).collect();
        assert_eq!(numbers.len(), 1_000);
    }

    #[cfg(feature = "test-util")]
    #[test]
    fn equal_seeds_give_equal_values() {
        let draws = |seed| {
            let random = Random::seeded(seed);
            (0..100).map(|_| (random.number(), random.uuid())).collect::<Vec<_>>()
        };
        assert_eq!(draws(7), draws(7));
        let (some, others) = (draws(7), draws(8));
        assert!(some.iter().zip(&others).all(|(one, other)| one.0 != other.0 && one.1 != other.1));
    }
}
