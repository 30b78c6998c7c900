//! The random choices of a task. They depend only on the seed, so a run with the same seed repeats
//! them.

use crate::target::Target;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::time::Duration;

pub(crate) const SHORTEST_TTL: Duration = Duration::from_millis(300);
/// The longest TTL that a client requests in an acquire or an extension.
pub const LONGEST_TTL: Duration = Duration::from_secs(2);

/// One cycle of a task: acquire, work, release.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) target: Target,
    pub(crate) ttl: Duration,
    /// The wait limit of the acquire, or `None` for a single attempt.
    pub(crate) wait: Option<Duration>,
    pub(crate) gives_up_early: bool,
    /// If set, the task drops the future of the acquire after this time.
    pub(crate) drop_after: Option<Duration>,
    /// If set, the library extends the lease in the background, for at most this long.
    pub(crate) auto_extend: Option<Duration>,
    pub(crate) caution: Caution,
    pub(crate) steps: Vec<Step>,
    pub(crate) lease_end: LeaseEnd,
    /// If set, the task writes once more with its token, this long after the end of the lease.
    pub(crate) late_write_after: Option<Duration>,
    pub(crate) rest: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    /// The time between reading and writing the counter.
    pub(crate) sleep: Duration,
    pub(crate) extend: Option<Extend>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Extend {
    pub(crate) ttl: Duration,
    /// If set, the task drops the future of the extension after this time.
    pub(crate) drop_after: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caution {
    /// Checks the lease before each write, and stops working when the library reports a loss.
    Notified,
    Checks,
    /// Writes to a fenced cell without checking the lease. Writes to a counter always require a
    /// check.
    Unchecked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseEnd {
    Release,
    Drop,
    /// Calls `release` and drops its future after this time.
    DropRelease(Duration),
}

impl Choice {
    /// Returns true if the library extends the lease in the background.
    pub(crate) fn is_renewed(&self) -> bool {
        self.auto_extend.is_some() || matches!(self.target, Target::Job(_) | Target::Leadership(_))
    }

    /// Returns the choices of a task for one cycle. `task` identifies the task by three numbers:
    /// the part of the run, the client, and the task within the client.
    pub(crate) fn of(seed: u64, task: [u16; 3], cycle: u64) -> Self {
        let [part, client, task] = task.map(u64::from);
        let task = part << 48 | client << 32 | task << 16;
        let rng =
            &mut StdRng::seed_from_u64(mix_seeds(seed, task).wrapping_add(mix_seeds(cycle, task)));
        let ttl = random_duration(rng, SHORTEST_TTL, LONGEST_TTL);
        let wait = rng.random_bool(0.65).then(|| random_millis(rng, 50, 2_000));
        Self {
            target: Target::random(rng),
            ttl,
            wait,
            gives_up_early: rng.random_bool(0.1),
            drop_after: rng.random_bool(0.12).then(|| random_millis(rng, 0, 60)),
            auto_extend: rng.random_bool(0.5).then(|| random_millis(rng, 400, 4_000)),
            caution: Caution::random(rng),
            steps: (0..rng.random_range(1..=3)).map(|_| Step::random(rng, ttl)).collect(),
            lease_end: LeaseEnd::random(rng),
            rest: random_millis(rng, 0, 25),
            late_write_after: rng.random_bool(0.2).then(|| random_millis(rng, 0, 400)),
        }
    }
}

impl Step {
    fn random(rng: &mut StdRng, ttl: Duration) -> Self {
        // Some sleeps are longer than the TTL.
        let sleep =
            if rng.random_bool(0.03) { ttl.mul_f64(1.2) } else { random_millis(rng, 1, 20) };
        let extend = rng.random_bool(0.25).then(|| Extend {
            ttl: random_duration(rng, SHORTEST_TTL, LONGEST_TTL),
            drop_after: rng.random_bool(0.15).then(|| random_millis(rng, 0, 10)),
        });
        Self { sleep, extend }
    }
}

impl Caution {
    fn random(rng: &mut StdRng) -> Self {
        match rng.random_range(0..8) {
            0..3 => Self::Notified,
            3..6 => Self::Checks,
            _ => Self::Unchecked,
        }
    }
}

impl LeaseEnd {
    fn random(rng: &mut StdRng) -> Self {
        match rng.random_range(0..10) {
            0..6 => Self::Release,
            6..9 => Self::Drop,
            _ => Self::DropRelease(random_millis(rng, 0, 5)),
        }
    }
}

/// Derives a new seed from two numbers. Inputs that differ by 1 give unrelated seeds.
pub fn mix_seeds(one: u64, other: u64) -> u64 {
    StdRng::seed_from_u64(one ^ other.rotate_left(17)).random()
}

fn random_duration(rng: &mut StdRng, from: Duration, to: Duration) -> Duration {
    rng.random_range(from..=to)
}

fn random_millis(rng: &mut StdRng, from: u64, to: u64) -> Duration {
    random_duration(rng, Duration::from_millis(from), Duration::from_millis(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_depend_only_on_seed_and_task() {
        let choices = |seed, task| {
            let each = (0..50).map(|cycle| Choice::of(seed, task, cycle));
            each.collect::<Vec<_>>()
        };
        assert_eq!(choices(7, [0, 1, 2]), choices(7, [0, 1, 2]));
        for (seed, task) in [(8, [0, 1, 2]), (7, [1, 1, 2]), (7, [0, 2, 2]), (7, [0, 1, 3])] {
            assert_ne!(choices(7, [0, 1, 2]), choices(seed, task));
        }
    }

    #[test]
    fn choices_are_within_their_limits() {
        for cycle in 0..500 {
            let choice = Choice::of(1, [0, 0, 0], cycle);
            assert!((SHORTEST_TTL..=LONGEST_TTL).contains(&choice.ttl));
        }
    }
}
