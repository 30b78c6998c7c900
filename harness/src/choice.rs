//! What a task does next, by the seed alone: nothing that happens has an influence on it.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::ops::Range;
use std::time::Duration;

/// The ttls in use.
pub(crate) const SHORTEST_TTL: Duration = Duration::from_millis(300);
/// The longest ttl, also of extensions.
pub const LONGEST_TTL: Duration = Duration::from_secs(2);
/// The most resources of one lease.
const MOST_TOGETHER: usize = 3;
/// One resource in so many is locked without fencing tokens.
const PLAIN: u16 = 4;

/// One cycle of a task: acquire, work, end.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) resources: Vec<u16>,
    /// Whether it is acquired with a fencing token: of a resource always, or never.
    pub(crate) is_fenced: bool,
    pub(crate) ttl: Duration,
    /// How long to wait; `None` for one attempt.
    pub(crate) wait: Option<Duration>,
    pub(crate) gives_up_early: bool,
    /// When the acquire is dropped.
    pub(crate) drop_after: Option<Duration>,
    /// How long to hold it at the most, if it is extended in the background.
    pub(crate) auto_extend: Option<Duration>,
    pub(crate) care: Care,
    pub(crate) steps: Vec<Step>,
    pub(crate) leaving: Leaving,
    /// How long after the end it writes with its token once more.
    pub(crate) lingers: Option<Duration>,
    /// How long to do nothing afterwards.
    pub(crate) rest: Duration,
}

/// One update of a counter, and what follows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    /// How long it takes from reading to writing.
    pub(crate) sleep: Duration,
    pub(crate) extend: Option<Extend>,
}

/// An extension.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Extend {
    pub(crate) ttl: Duration,
    /// When it is dropped.
    pub(crate) drop_after: Option<Duration>,
}

/// How a holder minds the end of its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Care {
    /// It looks before each write, and wants to be told of the loss.
    Listens,
    /// It looks before each write.
    Looks,
    /// It looks before it writes to a counter, and writes to a fenced cell without a look.
    Careless,
}

/// How a lease ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    Release,
    Drop,
    /// The release is dropped after that time.
    DropRelease(Duration),
}

impl Choice {
    /// The choice of a task for its cycle of that number.
    pub(crate) fn of(seed: u64, whose: [u16; 3], cycle: u64, resources: u16) -> Self {
        let [part, client, task] = whose.map(u64::from);
        let whose = part << 48 | client << 32 | task << 16;
        let rng = &mut StdRng::seed_from_u64(mixed(seed, whose).wrapping_add(mixed(cycle, whose)));
        let ttl = ms(rng, SHORTEST_TTL, LONGEST_TTL);
        let together = if rng.random_bool(0.1) { rng.random_range(2..=MOST_TOGETHER) } else { 1 };
        let wait = rng.random_bool(0.65).then(|| millis(rng, 50, 2_000));
        let alike = alike(resources, rng.random_range(0..resources));
        Self {
            resources: distinct(rng, together, &alike),
            is_fenced: alike.start == 0,
            ttl,
            wait,
            gives_up_early: rng.random_bool(0.1),
            drop_after: rng.random_bool(0.12).then(|| millis(rng, 0, 60)),
            auto_extend: rng.random_bool(0.5).then(|| millis(rng, 400, 4_000)),
            care: Care::random(rng),
            steps: (0..rng.random_range(1..=3)).map(|_| Step::random(rng, ttl)).collect(),
            leaving: Leaving::random(rng),
            rest: millis(rng, 0, 25),
            lingers: rng.random_bool(0.2).then(|| millis(rng, 0, 400)),
        }
    }
}

impl Step {
    fn random(rng: &mut StdRng, ttl: Duration) -> Self {
        // Now and then longer than the ttl.
        let sleep = if rng.random_bool(0.03) { ttl.mul_f64(1.2) } else { millis(rng, 1, 20) };
        let extend = rng.random_bool(0.25).then(|| Extend {
            ttl: ms(rng, SHORTEST_TTL, LONGEST_TTL),
            drop_after: rng.random_bool(0.15).then(|| millis(rng, 0, 10)),
        });
        Self { sleep, extend }
    }
}

impl Care {
    fn random(rng: &mut StdRng) -> Self {
        match rng.random_range(0..8) {
            0..3 => Self::Listens,
            3..6 => Self::Looks,
            _ => Self::Careless,
        }
    }
}

impl Leaving {
    fn random(rng: &mut StdRng) -> Self {
        match rng.random_range(0..10) {
            0..6 => Self::Release,
            6..9 => Self::Drop,
            _ => Self::DropRelease(millis(rng, 0, 5)),
        }
    }
}

/// A seed from two, so that neighbours have nothing in common.
pub fn mixed(one: u64, other: u64) -> u64 {
    StdRng::seed_from_u64(one ^ other.rotate_left(17)).random()
}

/// Those resources that are fenced, or not, as `one` is: the last of them are not.
fn alike(resources: u16, one: u16) -> Range<u16> {
    let fenced = resources - resources / PLAIN;
    if one < fenced { 0..fenced } else { fenced..resources }
}

fn distinct(rng: &mut StdRng, count: usize, resources: &Range<u16>) -> Vec<u16> {
    let mut chosen = Vec::with_capacity(count);
    while chosen.len() < count.min(resources.len()) {
        let one = rng.random_range(resources.clone());
        if !chosen.contains(&one) {
            chosen.push(one);
        }
    }
    chosen
}

fn ms(rng: &mut StdRng, from: Duration, to: Duration) -> Duration {
    rng.random_range(from..=to)
}

fn millis(rng: &mut StdRng, from: u64, to: u64) -> Duration {
    ms(rng, Duration::from_millis(from), Duration::from_millis(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_choices_and_another_others() {
        let choices = |seed, whose| {
            let each = (0..50).map(|cycle| Choice::of(seed, whose, cycle, 20));
            each.collect::<Vec<_>>()
        };
        assert_eq!(choices(7, [0, 1, 2]), choices(7, [0, 1, 2]));
        for (seed, whose) in [(8, [0, 1, 2]), (7, [1, 1, 2]), (7, [0, 2, 2]), (7, [0, 1, 3])] {
            assert_ne!(choices(7, [0, 1, 2]), choices(seed, whose));
        }
    }

    #[test]
    fn choices_stay_within_their_bounds() {
        for cycle in 0..500 {
            let choice = Choice::of(1, [0, 0, 0], cycle, 20);
            assert!((SHORTEST_TTL..=LONGEST_TTL).contains(&choice.ttl));
            assert!((1..=MOST_TOGETHER).contains(&choice.resources.len()));
            assert!(choice.resources.iter().all(|one| *one < 20));
        }
        let only = Choice::of(1, [0, 0, 0], 0, 1);
        assert_eq!((only.resources, only.is_fenced), (vec![0], true), "no more than there are");
    }

    #[test]
    fn a_resource_is_always_fenced_or_never() {
        let choices: Vec<_> = (0..500).map(|cycle| Choice::of(1, [0, 0, 0], cycle, 20)).collect();
        for choice in &choices {
            assert!(choice.resources.iter().all(|one| (*one < 15) == choice.is_fenced));
        }
        let fenced = choices.iter().filter(|choice| choice.is_fenced).count();
        assert!((325..425).contains(&fenced), "{fenced} of 500");
    }
}
