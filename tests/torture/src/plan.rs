//! The schedule of faults, made from the seed before anything begins.

use crate::era::Era;
use crate::nemesis::{Kind, NODE_TIMEOUT, Nemesis, OLD, REREAD};
use crate::rolling::Rolling;
use crate::room::{Break, Limits, Target, Victims};
use harness::choice::{LONGEST_TTL, mixed};
use rand::rngs::StdRng;
use rand::seq::index;
use rand::{RngExt, SeedableRng};
use std::time::Duration;

/// The mean time between two faults.
const PERIOD: Duration = Duration::from_millis(300);
/// How long after the beginning of a part the first one comes.
const CALM: Duration = Duration::from_millis(500);
/// How many times a fault is drawn anew when there is no room for it.
const DRAWS: usize = 20;

/// The mean time between two moments at which clocks step. Inside the promise, about half of them are ruled out.
const STEP_PERIOD: Duration = Duration::from_millis(700);
/// The shortest step, and how many times that the longest is.
const STEP: (Duration, f64) = (Duration::from_millis(5), 40.0);
/// How soon after the last of several restarts clients come new.
const SOON: Duration = Duration::from_millis(600);
/// How many clients there may be at a time beside those that stay.
pub(crate) const NEWCOMERS: u16 = 2;

/// A fault to come.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Planned {
    pub(crate) nemesis: Nemesis,
    pub(crate) target: Target,
    /// When, from the beginning of the part on.
    pub(crate) at: Duration,
    pub(crate) lasts: Duration,
    /// A delay, for the nemeses that have one; of a step, how far.
    pub(crate) delay: Duration,
    /// Which nodes, for the nemesis that has several.
    pub(crate) rolling: Option<Rolling>,
}

/// What there is to be faulted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) nodes: u16,
    pub(crate) clients: u16,
    /// How long it lasts.
    pub(crate) lasts: Duration,
    pub(crate) is_inside: bool,
    /// Which of two ways of everything that comes in turns is first.
    pub(crate) turn: u64,
}

impl Planned {
    /// Who is broken by it, and in what ways.
    pub(crate) fn claims(&self) -> Vec<Break> {
        match &self.rolling {
            Some(rolling) => rolling.claims(),
            None if self.nemesis.delays() => {
                vec![(self.target, self.nemesis.kind()), (self.target, Kind::Delayed)]
            }
            None => vec![(self.target, self.nemesis.kind())],
        }
    }

    fn end(&self) -> Duration {
        self.at + self.lasts
    }

    /// True if clients may read the clock too inexactly to detect the `step`, because replies of the node take long, or
    /// did until a moment before.
    fn delays(&self, step: &Self) -> bool {
        let is_there = [Target::Network, step.target].contains(&self.target);
        let is_then = self.at <= step.at && step.at <= self.end() + REREAD;
        self.nemesis.delays() && is_there && is_then
    }

    /// Until when the nodes that it broke are no witnesses.
    fn shakes_until(&self) -> Duration {
        let settles = self.rolling.as_ref().map_or(Duration::ZERO, Rolling::settles);
        self.end().saturating_sub(settles) + self.nemesis.shakes()
    }
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
            is_inside: self.is_inside,
        }
    }

    /// Whether clients are told that durable nodes keep their data whatever happens. Then they do, and
    /// count at once when they come back; else they can lose their disks, too.
    pub(crate) fn is_trusting(&self) -> bool {
        self.turn.is_multiple_of(2)
    }

    /// Whether the nodes are old when clients first see them; else the deployment itself is new.
    pub(crate) fn is_old(&self) -> bool {
        self.turn % 4 < 2
    }

    /// Whether a node keeps its data when it is killed. Every other one does, so that both kinds are
    /// there; in three, one is the whole minority.
    pub(crate) fn is_durable(node: u16) -> bool {
        node % 2 == 1
    }

    /// The faults of a part, in order. All end before it does.
    pub(crate) fn plan(&self, seed: u64, part: u16) -> Vec<Planned> {
        let rng = &mut StdRng::seed_from_u64(mixed(seed, 0xFA_0175 + u64::from(part)));
        let mut plan: Vec<Planned> = Vec::new();
        let mut at = CALM;
        while at < self.lasts {
            let allowed: Vec<_> =
                Nemesis::ALL.into_iter().filter(|one| self.allows(*one, at)).collect();
            let weights: u32 = allowed.iter().map(|one| one.weight(self.is_inside)).sum();
            let drawn = (0..DRAWS).find_map(|_| {
                let nemesis = self.drawn(rng, &allowed, weights);
                let planned = self.draw(rng, nemesis, at);
                self.has_room(&plan, &planned).then_some(planned)
            });
            let rolling = drawn.iter().find_map(|one| one.rolling.clone());
            plan.extend(drawn);
            for beside in rolling.iter().flat_map(|rolling| self.beside(rng, at, rolling)) {
                plan.extend(Some(beside).filter(|beside| self.has_room(&plan, beside)));
            }
            at += pause(rng, PERIOD);
        }
        let mut steps = self.steps(seed, part);
        steps.retain(|step| !self.is_inside || !plan.iter().any(|other| other.delays(step)));
        plan.extend(steps);
        plan.sort_by_key(|planned| planned.at);
        plan
    }

    /// The steps of clocks: mostly of one at a time, and mostly forward.
    fn steps(&self, seed: u64, part: u16) -> Vec<Planned> {
        let rng = &mut StdRng::seed_from_u64(mixed(seed, 0x57E9 + u64::from(part)));
        let period = if self.is_inside { STEP_PERIOD / 2 } else { STEP_PERIOD };
        let mut steps = Vec::new();
        let mut at = CALM;
        while at < self.lasts {
            let nodes = usize::from(self.nodes);
            let together = if rng.random_bool(0.3) { rng.random_range(1..=nodes) } else { 1 };
            for node in index::sample(rng, nodes, together) {
                let is_back = rng.random_bool(0.2);
                let nemesis = if is_back { Nemesis::StepBack } else { Nemesis::StepForward };
                let (lasts, _) = nemesis.lasts();
                // As many short ones as long ones, on a scale of ratios.
                let delay = STEP.0.mul_f64(STEP.1.powf(rng.random()));
                let target = Target::Node(u16::try_from(node).expect("one of those there are"));
                let step = Planned { nemesis, target, at, lasts, delay, rolling: None };
                let is_allowed = !self.is_inside || self.era(at).allows_step(at);
                steps.extend(Some(step).filter(|step| is_allowed && step.end() < self.lasts));
            }
            at += pause(rng, period);
        }
        steps
    }

    fn era(&self, at: Duration) -> Era {
        Era::at(at, self.lasts, self.turn)
    }

    fn drawn(&self, rng: &mut StdRng, nemeses: &[Nemesis], weights: u32) -> Nemesis {
        let mut left = rng.random_range(0..weights);
        for nemesis in nemeses {
            match left.checked_sub(nemesis.weight(self.is_inside)) {
                Some(less) => left = less,
                None => return *nemesis,
            }
        }
        unreachable!("the weights add up to more")
    }

    fn allows(&self, nemesis: Nemesis, at: Duration) -> bool {
        let suits = match nemesis {
            Nemesis::RollingRestart => {
                self.nodes > 1 && !(self.is_inside && self.era(at).has_steps)
            }
            Nemesis::Newcomer | Nemesis::KillClient => {
                !self.is_inside || self.era(at).allows_newcomer(at)
            }
            _ => true,
        };
        suits && (nemesis.is_promised(true) || !self.is_inside)
    }

    fn draw(&self, rng: &mut StdRng, nemesis: Nemesis, at: Duration) -> Planned {
        let target = match (nemesis, nemesis.kind()) {
            (Nemesis::Newcomer, _) => Target::Newcomer(rng.random_range(0..NEWCOMERS)),
            (_, Kind::Client | Kind::Newcomer) => Target::Client(rng.random_range(0..self.clients)),
            (_, Kind::Server | Kind::Clock | Kind::Wire | Kind::Step) => {
                Target::Node(rng.random_range(0..self.nodes))
            }
            _ => Target::Network,
        };
        let rolling = (nemesis == Nemesis::RollingRestart).then(|| self.rolling(rng));
        let (shortest, longest) = nemesis.lasts();
        // Many short ones and few long ones.
        let share = rng.random::<f64>().powi(2);
        let lasts = shortest + longest.saturating_sub(shortest).mul_f64(share);
        let lasts = rolling.as_ref().map_or(lasts, Rolling::lasts);
        let most = match nemesis {
            Nemesis::SlowNetwork => NODE_TIMEOUT * 3 / 4,
            _ => 2 * LONGEST_TTL,
        };
        let delay = most.mul_f64(rng.random());
        Planned { nemesis, target, at, lasts, delay, rolling }
    }

    /// What makes restarts of nodes dangerous: clients that come new when most nodes have forgotten
    /// the locks of one that hangs, and cannot put them back.
    fn beside(&self, rng: &mut StdRng, at: Duration, rolling: &Rolling) -> Vec<Planned> {
        let hang = self.draw(rng, Nemesis::HangClient, at);
        let mut beside = vec![Planned { lasts: rolling.span() + LONGEST_TTL, ..hang }];
        for place in 0..NEWCOMERS {
            let at = at + rolling.span() + SOON.mul_f64(rng.random());
            let target = Target::Newcomer(place);
            beside.push(Planned { target, ..self.draw(rng, Nemesis::Newcomer, at) });
        }
        beside
    }

    fn rolling(&self, rng: &mut StdRng) -> Rolling {
        if self.is_inside {
            let is_trusted = |node| self.is_trusting() && Self::is_durable(node);
            Rolling::inside(rng, self.nodes, is_trusted)
        } else {
            Rolling::outside(rng, self.nodes)
        }
    }

    fn has_room(&self, plan: &[Planned], next: &Planned) -> bool {
        let is_suited = match next.target {
            Target::Node(node) => next.nemesis.suits(Self::is_durable(node)),
            Target::Client(_) | Target::Newcomer(_) | Target::Network => true,
        };
        let end = next.end();
        // Who comes new has seen all before clocks step again.
        let knows_in_time = match next.nemesis {
            Nemesis::KillClient | Nemesis::Newcomer if self.is_inside => {
                self.era(next.at).allows_newcomer(end)
            }
            _ => true,
        };
        is_suited
            && knows_in_time
            && end < self.lasts
            && self.victims(plan, next.at).have_room(&next.claims(), self.limits())
    }

    /// Who is broken at that time.
    fn victims(&self, plan: &[Planned], at: Duration) -> Victims {
        let mut victims = Victims::default();
        for earlier in plan.iter().filter(|earlier| earlier.end() >= at) {
            victims.enter(&earlier.claims());
        }
        for earlier in plan.iter().filter(|earlier| earlier.shakes_until() >= at) {
            for (target, kind) in earlier.claims() {
                let is_shaken = matches!(kind, Kind::Server | Kind::Wire | Kind::Rolling);
                if is_shaken {
                    victims.enter(&[(target, Kind::Shaken)]);
                }
            }
        }
        if !self.is_old() && at < OLD {
            let young = (0..self.nodes).map(|node| (Target::Node(node), Kind::Shaken));
            victims.enter(&young.collect::<Vec<_>>());
        }
        victims
    }
}

/// Until the next one. Exponential: they come in bunches, as in life.
fn pause(rng: &mut StdRng, mean: Duration) -> Duration {
    mean.mul_f64(-(1.0 - rng.random::<f64>()).ln())
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
