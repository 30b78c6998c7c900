//! The schedule of faults, made from the seed before anything begins.

use crate::choice::{LONGEST_TTL, mixed};
use crate::nemesis::{Kind, Nemesis};
use crate::room::{Limits, Target, Victims};
use crate::task::NODE_TIMEOUT;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::time::Duration;

/// The mean time between two faults.
const PERIOD: Duration = Duration::from_millis(300);
/// How long after the beginning of a part the first one comes.
const CALM: Duration = Duration::from_millis(500);
/// How many times a fault is drawn anew when there is no room for it.
const DRAWS: usize = 20;

/// A fault to come.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Planned {
    pub(crate) nemesis: Nemesis,
    pub(crate) target: Target,
    /// When, from the beginning of the part on.
    pub(crate) at: Duration,
    pub(crate) lasts: Duration,
    /// A delay, for the nemeses that have one.
    pub(crate) delay: Duration,
}

/// What there is to be faulted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) nodes: u16,
    pub(crate) clients: u16,
    /// How long it lasts.
    pub(crate) lasts: Duration,
    pub(crate) is_inside: bool,
}

impl Field {
    /// How much may be broken at a time.
    pub(crate) fn limits(&self) -> Limits {
        let (nodes, clients) = (usize::from(self.nodes), usize::from(self.clients));
        // A minority. A single node has none: it is broken alone, as long as that does not make it
        // forget a lock that somebody may have.
        let minority = ((nodes - 1) / 2).max(1);
        Limits {
            nodes: if self.is_inside { minority } else { nodes },
            clients: clients.div_ceil(2),
        }
    }

    /// Whether a node keeps its data when it is killed. Every other one does, so that both kinds are
    /// there; in three, one is the whole minority.
    pub(crate) fn is_durable(node: u16) -> bool {
        node % 2 == 1
    }

    /// The faults of a part, in order. All end before it does.
    pub(crate) fn plan(&self, seed: u64, part: u16) -> Vec<Planned> {
        let rng = &mut StdRng::seed_from_u64(mixed(seed, 0xFA_0175 + u64::from(part)));
        let allowed: Vec<_> = Nemesis::ALL.into_iter().filter(|one| self.allows(*one)).collect();
        let weights: u32 = allowed.iter().map(|one| one.weight()).sum();
        let mut plan: Vec<Planned> = Vec::new();
        let mut at = CALM;
        while at < self.lasts {
            let drawn = (0..DRAWS).find_map(|_| {
                let nemesis = drawn(rng, &allowed, weights);
                let planned = self.draw(rng, nemesis, at);
                self.has_room(&plan, &planned).then_some(planned)
            });
            plan.extend(drawn);
            // Exponential: they come in bunches, as in life.
            at += PERIOD.mul_f64(-(1.0 - rng.random::<f64>()).ln());
        }
        plan
    }

    fn allows(&self, nemesis: Nemesis) -> bool {
        nemesis.is_promised() || !self.is_inside
    }

    fn draw(&self, rng: &mut StdRng, nemesis: Nemesis, at: Duration) -> Planned {
        let target = match nemesis.kind() {
            Kind::Client => Target::Client(rng.random_range(0..self.clients)),
            Kind::Network | Kind::Memory => Target::Network,
            Kind::Server | Kind::Clock | Kind::Wire => {
                Target::Node(rng.random_range(0..self.nodes))
            }
        };
        let (shortest, longest) = nemesis.lasts();
        // Many short ones and few long ones.
        let share = rng.random::<f64>().powi(2);
        let lasts = shortest + longest.saturating_sub(shortest).mul_f64(share);
        let most = match nemesis {
            Nemesis::SlowNetwork => NODE_TIMEOUT * 3 / 4,
            _ => 2 * LONGEST_TTL,
        };
        let delay = most.mul_f64(rng.random());
        Planned { nemesis, target, at, lasts, delay }
    }

    fn has_room(&self, plan: &[Planned], next: &Planned) -> bool {
        let is_suited = match next.target {
            Target::Node(node) => next.nemesis.suits(Self::is_durable(node)),
            Target::Client(_) | Target::Network => true,
        };
        let mut victims = Victims::default();
        for earlier in plan.iter().filter(|earlier| earlier.at + earlier.lasts >= next.at) {
            victims.enter(earlier.target, earlier.nemesis.kind());
        }
        let ends_in_time = next.at + next.lasts < self.lasts;
        let kind = next.nemesis.kind();
        is_suited && ends_in_time && victims.has_room(next.target, kind, self.limits())
    }
}

fn drawn(rng: &mut StdRng, nemeses: &[Nemesis], weights: u32) -> Nemesis {
    let mut left = rng.random_range(0..weights);
    for nemesis in nemeses {
        match left.checked_sub(nemesis.weight()) {
            Some(less) => left = less,
            None => return *nemesis,
        }
    }
    unreachable!("the weights add up to more")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn field(nodes: u16, is_inside: bool) -> Field {
        Field { nodes, clients: 4, lasts: Duration::from_mins(2), is_inside }
    }

    #[test]
    fn the_same_seed_gives_the_same_plan() {
        let inside = field(5, true);
        assert_eq!(inside.plan(7, 0), inside.plan(7, 0));
        assert_ne!(inside.plan(7, 0), inside.plan(8, 0));
        assert_ne!(inside.plan(7, 0), inside.plan(7, 1));
    }

    #[test]
    fn inside_the_promise_a_minority_is_broken_at_a_time() {
        for (nodes, most) in [(1, 1), (3, 1), (5, 2)] {
            let plan = field(nodes, true).plan(3, 0);
            for (index, fault) in plan.iter().enumerate() {
                let at_work = plan[..=index].iter().filter(|one| one.at + one.lasts >= fault.at);
                let broken: BTreeSet<_> = at_work
                    .filter(|one| matches!(one.target, Target::Node(_)))
                    .map(|one| one.target)
                    .collect();
                assert!(broken.len() <= most, "{broken:?} of {nodes}");
                assert!(fault.nemesis.is_promised());
            }
        }
    }

    #[test]
    fn every_nemesis_has_its_turn_and_they_come_often() {
        let plan = field(5, false).plan(1, 0);
        let seen: BTreeSet<_> = plan.iter().map(|fault| fault.nemesis).collect();
        assert_eq!(seen.len(), Nemesis::ALL.len(), "{seen:?}");
        assert!((300..500).contains(&plan.len()), "{}", plan.len());
        assert!(plan.is_sorted_by_key(|fault| fault.at));
    }
}
