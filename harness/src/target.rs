//! The targets of acquires, one variant for each kind of lock that the library offers. `check`
//! contains the rule that the holders of a kind must follow.

use crate::record::Verb;
use crate::resources::{ELECTIONS, JOBS, LOCKS, SEMAPHORES, SHARED_LOCKS, Semaphore, name};
use quorlock::{Acquire, ConfigError, Redlock};
use rand::RngExt;
use rand::rngs::StdRng;
use std::ops::Range;

/// The maximum number of locks that one acquire locks.
const MOST_TOGETHER: usize = 3;
/// The maximum number of locks of which one acquire locks any one.
const MOST_CANDIDATES: usize = 5;
/// The locks with lower numbers are always acquired with a fencing token, the others never.
const FENCED_LOCKS: u16 = LOCKS - LOCKS / 4;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Target {
    /// All of these locks.
    All(Vec<u16>),
    /// Any one of these locks.
    Any(Vec<u16>),
    /// Any permit of a semaphore.
    Permit(&'static Semaphore),
    /// A lock that readers share.
    Shared(u16, Access),
    /// A run of a job.
    Job(u16),
    /// The leadership of an election.
    Leadership(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// Writes once, and then becomes a reader.
    Downgrade,
}

impl Target {
    pub(crate) fn random(rng: &mut StdRng) -> Self {
        let is_fenced = rng.random_range(0..LOCKS) < FENCED_LOCKS;
        let group = if is_fenced { 0..FENCED_LOCKS } else { FENCED_LOCKS..LOCKS };
        match rng.random_range(0..26) {
            0..11 => Self::All(distinct(rng, 1, &group)),
            11..13 => {
                let together = rng.random_range(2..=MOST_TOGETHER);
                Self::All(distinct(rng, together, &group))
            }
            13..16 => {
                let candidates = rng.random_range(2..=MOST_CANDIDATES);
                Self::Any(distinct(rng, candidates, &group))
            }
            16..20 => Self::Permit(&SEMAPHORES[rng.random_range(0..SEMAPHORES.len())]),
            20..23 => {
                let lock = SHARED_LOCKS[rng.random_range(0..SHARED_LOCKS.len())];
                Self::Shared(lock, Access::random(rng))
            }
            23..25 => Self::Job(rng.random_range(JOBS)),
            _ => Self::Leadership(rng.random_range(ELECTIONS)),
        }
    }

    /// Returns whether the acquire requests a fencing token. A given resource is acquired either
    /// always or never with a token.
    pub(crate) fn is_fenced(&self) -> bool {
        match self {
            Self::All(locks) | Self::Any(locks) => locks.iter().all(|lock| *lock < FENCED_LOCKS),
            Self::Permit(semaphore) => semaphore.is_fenced,
            Self::Shared(lock, _) => *lock < FENCED_LOCKS,
            Self::Job(job) => *job < JOBS.start + 2,
            Self::Leadership(_) => true,
        }
    }

    /// Returns whether the acquire is for reading only.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self, Self::Shared(_, Access::Read))
    }

    pub(crate) fn verb(&self) -> Verb {
        match self {
            Self::All(_) => Verb::Acquire,
            Self::Any(_) => Verb::AcquireAny,
            Self::Permit(_) => Verb::AcquirePermit,
            Self::Shared(_, Access::Read) => Verb::AcquireRead,
            Self::Shared(..) => Verb::AcquireWrite,
            Self::Job(_) => Verb::StartJob,
            Self::Leadership(_) => Verb::Campaign,
        }
    }

    /// Creates the acquire, which waits or makes a single attempt. `permits` is the number of
    /// permits that the client uses for a semaphore.
    ///
    /// # Panics
    ///
    /// Panics for a job or a leadership, which are not acquired as locks.
    pub(crate) fn acquire(
        &self,
        redlock: &Redlock,
        permits: impl Fn(&Semaphore) -> u16,
        waits: bool,
    ) -> Result<Acquire, ConfigError> {
        let names = |locks: &[u16]| locks.iter().copied().map(name).collect::<Vec<_>>();
        Ok(match (self, waits) {
            (Self::All(locks), _) if locks.len() == 1 => {
                let name = name(locks[0]);
                if waits { redlock.acquire(name) } else { redlock.try_acquire(name) }
            }
            (Self::All(locks), true) => redlock.acquire_all(names(locks)),
            (Self::All(locks), false) => redlock.try_acquire_all(names(locks)),
            (Self::Any(locks), true) => redlock.acquire_any(names(locks)),
            (Self::Any(locks), false) => redlock.try_acquire_any(names(locks)),
            (Self::Permit(semaphore), _) => {
                let permits = usize::from(permits(semaphore));
                let semaphore = redlock.semaphore(semaphore.name(), permits)?;
                if waits { semaphore.acquire() } else { semaphore.try_acquire() }
            }
            (Self::Shared(lock, access), _) => {
                let lock = redlock.rw_lock(name(*lock))?;
                match (*access == Access::Read, waits) {
                    (true, true) => lock.read(),
                    (true, false) => lock.try_read(),
                    (false, true) => lock.write(),
                    (false, false) => lock.try_write(),
                }
            }
            (Self::Job(_) | Self::Leadership(_), _) => unreachable!("not acquired as a lock"),
        })
    }

    /// Returns true if a lease for this target can have exactly these resources.
    pub(crate) fn matches(&self, resources: &[u16]) -> bool {
        match (self, resources) {
            (Self::All(locks), _) => {
                resources.len() == locks.len() && locks.iter().all(|lock| resources.contains(lock))
            }
            (Self::Any(locks), [one]) => locks.contains(one),
            (Self::Permit(semaphore), [one]) => semaphore.resources().contains(one),
            (Self::Shared(own, _) | Self::Job(own) | Self::Leadership(own), [one]) => own == one,
            _ => false,
        }
    }

    /// Returns the resources that a sabotaged task uses without a lock.
    pub(crate) fn without_lock(&self) -> Vec<u16> {
        match self {
            Self::All(locks) => locks.clone(),
            Self::Any(locks) => locks.iter().take(1).copied().collect(),
            Self::Permit(semaphore) => semaphore.resources().take(1).collect(),
            Self::Shared(own, _) | Self::Job(own) | Self::Leadership(own) => vec![*own],
        }
    }
}

impl Access {
    fn random(rng: &mut StdRng) -> Self {
        match rng.random_range(0..10) {
            0..6 => Self::Read,
            6..8 => Self::Write,
            _ => Self::Downgrade,
        }
    }
}

fn distinct(rng: &mut StdRng, count: usize, locks: &Range<u16>) -> Vec<u16> {
    let mut chosen = Vec::with_capacity(count);
    while chosen.len() < count.min(locks.len()) {
        let one = rng.random_range(locks.clone());
        if !chosen.contains(&one) {
            chosen.push(one);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use std::collections::{BTreeMap, BTreeSet};

    fn targets() -> Vec<Target> {
        let rng = &mut StdRng::seed_from_u64(1);
        (0..1_000).map(|_| Target::random(rng)).collect()
    }

    #[test]
    fn each_resource_is_always_or_never_fenced() {
        let mut is_fenced = BTreeMap::new();
        for target in targets() {
            let resources = match &target {
                Target::All(locks) | Target::Any(locks) => locks.clone(),
                Target::Permit(semaphore) => semaphore.resources().collect(),
                _ => target.without_lock(),
            };
            assert!(!resources.is_empty() && target.matches(&target.without_lock()), "{target:?}");
            for resource in resources {
                let is_same = *is_fenced.entry(resource).or_insert(target.is_fenced());
                assert_eq!(is_same, target.is_fenced(), "{target:?}");
            }
        }
        assert_eq!(is_fenced.len(), usize::from(crate::resources::RESOURCES));
    }

    #[test]
    fn all_kinds_of_targets_compete_for_the_same_locks() {
        let mut locks: BTreeMap<_, BTreeSet<u16>> = BTreeMap::new();
        for target in targets() {
            if let Target::All(of) | Target::Any(of) = &target {
                locks.entry((target.verb(), of.len() > 1)).or_default().extend(of);
            }
        }
        let everywhere = (0..LOCKS).collect::<BTreeSet<_>>();
        assert_eq!(locks.len(), 3, "single locks, sets, and one of several");
        assert!(locks.values().all(|locks| *locks == everywhere), "{locks:?}");
    }

    #[test]
    fn lease_of_other_resources_does_not_match() {
        let all = Target::All(vec![3, 7]);
        assert!(all.matches(&[7, 3]) && !all.matches(&[3]) && !all.matches(&[3, 8]));
        let any = Target::Any(vec![3, 7]);
        assert!(any.matches(&[7]) && !any.matches(&[8]) && !any.matches(&[3, 7]));
        let permit = Target::Permit(&SEMAPHORES[0]);
        assert!(permit.matches(&[LOCKS + 1]) && !permit.matches(&[0]) && !permit.matches(&[]));
    }
}
