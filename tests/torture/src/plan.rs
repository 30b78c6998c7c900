//! The schedule of faults, generated from the seed before a part of the run begins.

use crate::admission::{ActiveFaults, Claim, Limits, Target};
use crate::nemesis::{CLOCK_REREAD_LIMIT, MIN_OLD_AGE, NODE_TIMEOUT, Nemesis, TargetClass};
use crate::phase::Phase;
use crate::rolling::Rolling;
use harness::choice::{LONGEST_TTL, mix_seeds};
use rand::rngs::StdRng;
use rand::seq::index;
use rand::{RngExt, SeedableRng};
use std::time::Duration;

/// The mean time between two faults.
const PERIOD: Duration = Duration::from_millis(300);
/// The time before the first fault.
const CALM: Duration = Duration::from_millis(500);
/// The maximum number of attempts to draw a fault that is compatible with the other faults.
const DRAWS: usize = 20;

/// The mean time between two clock steps. Within the guarantee, about half of the drawn steps are
/// excluded.
const STEP_PERIOD: Duration = Duration::from_millis(700);
/// The length of the shortest clock step, and the ratio of the longest step to the shortest step.
const STEP: (Duration, f64) = (Duration::from_millis(5), 40.0);
/// The maximum time between the end of a rolling restart and the start of new clients.
const SOON: Duration = Duration::from_millis(600);
pub(crate) const NEW_CLIENTS: u16 = 2;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Planned {
    pub(crate) nemesis: Nemesis,
    pub(crate) target: Target,
    /// The time between the start of this part of the run and the start of the fault.
    pub(crate) at: Duration,
    pub(crate) lasts: Duration,
    /// The delay of replies, or the length of a clock step. Some other faults use this value as a
    /// random number.
    pub(crate) magnitude: Duration,
    /// The nodes and the timing of a rolling restart. `None` for other faults.
    pub(crate) rolling: Option<Rolling>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) nodes: u16,
    pub(crate) clients: u16,
    pub(crate) lasts: Duration,
    pub(crate) is_inside: bool,
    /// A number that determines `is_trusting`, `is_old` and the kind of the first phase.
    pub(crate) variant: u64,
}

impl Planned {
    pub(crate) fn claims(&self) -> Vec<Claim> {
        match &self.rolling {
            Some(rolling) => rolling.claims(),
            None if self.nemesis.delays() => {
                vec![
                    (self.target, self.nemesis.target_class()),
                    (self.target, TargetClass::Delayed),
                ]
            }
            None => vec![(self.target, self.nemesis.target_class())],
        }
    }

    fn end(&self) -> Duration {
        self.at + self.lasts
    }

    /// Returns true if this fault delays the node's replies when `step` occurs, or did so until
    /// shortly before the step. Clients may then read the clock too imprecisely to detect the step.
    fn delays(&self, step: &Self) -> bool {
        let is_there = [Target::Network, step.target].contains(&self.target);
        let is_then = self.at <= step.at && step.at <= self.end() + CLOCK_REREAD_LIMIT;
        self.nemesis.delays() && is_there && is_then
    }

    /// Returns the time from which the affected nodes can be witnesses of a rolling restart again.
    fn recovers_at(&self) -> Duration {
        let settles = self.rolling.as_ref().map_or(Duration::ZERO, Rolling::settles);
        self.end().saturating_sub(settles) + self.nemesis.recovery_time()
    }
}

impl Setup {
    pub(crate) fn limits(&self) -> Limits {
        let (nodes, clients) = (usize::from(self.nodes), usize::from(self.clients));
        // Within the guarantee, only a minority of the nodes may be faulty. A single node has no
        // minority, but may be faulty as long as it does not lose a lock that a client may hold.
        let minority = ((nodes - 1) / 2).max(1);
        Limits {
            nodes: if self.is_inside { minority } else { nodes },
            clients: clients.div_ceil(2),
            is_inside: self.is_inside,
        }
    }

    /// Returns true if clients trust durable nodes to keep their data. Clients count the votes of a
    /// trusted node immediately after its restart. Without trust, durable nodes can also lose their
    /// disks.
    pub(crate) fn is_trusting(&self) -> bool {
        self.variant.is_multiple_of(2)
    }

    /// Returns true if the nodes have been running for a long time when clients first connect, and
    /// false for a new deployment.
    pub(crate) fn is_old(&self) -> bool {
        self.variant % 4 < 2
    }

    /// Returns true if the node keeps its data when it is killed. Every second node is durable, so
    /// that both kinds of nodes exist. Of three nodes, one is durable, which is a minority.
    pub(crate) fn is_durable(node: u16) -> bool {
        node % 2 == 1
    }

    /// Returns the faults of one part of the run, in order. All faults end within the part.
    pub(crate) fn plan(&self, seed: u64, part: u16) -> Vec<Planned> {
        let rng = &mut StdRng::seed_from_u64(mix_seeds(seed, 0xFA_0175 + u64::from(part)));
        let mut plan: Vec<Planned> = Vec::new();
        let mut at = CALM;
        while at < self.lasts {
            let allowed: Vec<_> =
                Nemesis::ALL.into_iter().filter(|one| self.allows(*one, at)).collect();
            let weights: u32 = allowed.iter().map(|one| one.weight(self.is_inside)).sum();
            let drawn = (0..DRAWS).find_map(|_| {
                let nemesis = self.draw_nemesis(rng, &allowed, weights);
                let planned = self.draw(rng, nemesis, at);
                self.is_admissible(&plan, &planned).then_some(planned)
            });
            let rolling = drawn.iter().find_map(|one| one.rolling.clone());
            plan.extend(drawn);
            for fault in
                rolling.iter().flat_map(|rolling| self.accompanying_faults(rng, at, rolling))
            {
                plan.extend(Some(fault).filter(|fault| self.is_admissible(&plan, fault)));
            }
            at += pause(rng, PERIOD);
        }
        let mut steps = self.steps(seed, part);
        steps.retain(|step| !self.is_inside || !plan.iter().any(|other| other.delays(step)));
        plan.extend(steps);
        plan.sort_by_key(|planned| planned.at);
        plan
    }

    /// Draws the clock steps of one part of the run. Usually only one node's clock steps at a time,
    /// and most steps are forward.
    fn steps(&self, seed: u64, part: u16) -> Vec<Planned> {
        let rng = &mut StdRng::seed_from_u64(mix_seeds(seed, 0x57E9 + u64::from(part)));
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
                // The length is uniformly distributed on a logarithmic scale.
                let magnitude = STEP.0.mul_f64(STEP.1.powf(rng.random()));
                let target = Target::Node(u16::try_from(node).expect("at most 9 nodes"));
                let step = Planned { nemesis, target, at, lasts, magnitude, rolling: None };
                let is_allowed = !self.is_inside || self.phase(at).allows_step(at);
                steps.extend(Some(step).filter(|step| is_allowed && step.end() < self.lasts));
            }
            at += pause(rng, period);
        }
        steps
    }

    fn phase(&self, at: Duration) -> Phase {
        Phase::at(at, self.lasts, self.variant)
    }

    fn draw_nemesis(&self, rng: &mut StdRng, nemeses: &[Nemesis], weights: u32) -> Nemesis {
        let mut left = rng.random_range(0..weights);
        for nemesis in nemeses {
            match left.checked_sub(nemesis.weight(self.is_inside)) {
                Some(less) => left = less,
                None => return *nemesis,
            }
        }
        unreachable!("`left` is less than the sum of the weights")
    }

    fn allows(&self, nemesis: Nemesis, at: Duration) -> bool {
        let suits = match nemesis {
            Nemesis::RollingRestart => {
                self.nodes > 1 && !(self.is_inside && self.phase(at).has_steps)
            }
            Nemesis::NewClient | Nemesis::KillClient => {
                !self.is_inside || self.phase(at).allows_new_client(at)
            }
            _ => true,
        };
        suits && (nemesis.is_guaranteed(true) || !self.is_inside)
    }

    fn draw(&self, rng: &mut StdRng, nemesis: Nemesis, at: Duration) -> Planned {
        let target = match (nemesis, nemesis.target_class()) {
            (Nemesis::NewClient, _) => Target::NewClient(rng.random_range(0..NEW_CLIENTS)),
            (_, TargetClass::Client | TargetClass::NewClient) => {
                Target::Client(rng.random_range(0..self.clients))
            }
            (
                _,
                TargetClass::Server | TargetClass::Clock | TargetClass::Wire | TargetClass::Step,
            ) => Target::Node(rng.random_range(0..self.nodes)),
            _ => Target::Network,
        };
        let rolling = (nemesis == Nemesis::RollingRestart).then(|| self.rolling(rng));
        let (shortest, longest) = nemesis.lasts();
        // Short durations are more likely than long ones.
        let share = rng.random::<f64>().powi(2);
        let lasts = shortest + longest.saturating_sub(shortest).mul_f64(share);
        let lasts = rolling.as_ref().map_or(lasts, Rolling::lasts);
        let most = match nemesis {
            Nemesis::SlowNetwork => NODE_TIMEOUT * 3 / 4,
            _ => 2 * LONGEST_TTL,
        };
        let magnitude = most.mul_f64(rng.random());
        Planned { nemesis, target, at, lasts, magnitude, rolling }
    }

    /// Draws the faults that make a rolling restart dangerous. A client is stopped, so it cannot
    /// restore its locks on the restarted nodes. New clients start after most nodes have lost these
    /// locks.
    fn accompanying_faults(
        &self,
        rng: &mut StdRng,
        at: Duration,
        rolling: &Rolling,
    ) -> Vec<Planned> {
        let hang = self.draw(rng, Nemesis::HangClient, at);
        let mut faults = vec![Planned { lasts: rolling.span() + LONGEST_TTL, ..hang }];
        for slot in 0..NEW_CLIENTS {
            let at = at + rolling.span() + SOON.mul_f64(rng.random());
            let target = Target::NewClient(slot);
            faults.push(Planned { target, ..self.draw(rng, Nemesis::NewClient, at) });
        }
        faults
    }

    fn rolling(&self, rng: &mut StdRng) -> Rolling {
        if self.is_inside {
            let is_trusted = |node| self.is_trusting() && Self::is_durable(node);
            Rolling::inside(rng, self.nodes, is_trusted)
        } else {
            Rolling::outside(rng, self.nodes)
        }
    }

    fn is_admissible(&self, plan: &[Planned], next: &Planned) -> bool {
        let is_suited = match next.target {
            Target::Node(node) => next.nemesis.suits(Self::is_durable(node)),
            Target::Client(_) | Target::NewClient(_) | Target::Network => true,
        };
        let end = next.end();
        // A new client must have reached all nodes before clocks can step again.
        let starts_in_time = match next.nemesis {
            Nemesis::KillClient | Nemesis::NewClient if self.is_inside => {
                self.phase(next.at).allows_new_client(end)
            }
            _ => true,
        };
        is_suited
            && starts_in_time
            && end < self.lasts
            && self.active(plan, next.at).are_admissible(&next.claims(), self.limits())
    }

    fn active(&self, plan: &[Planned], at: Duration) -> ActiveFaults {
        let mut active = ActiveFaults::default();
        for earlier in plan.iter().filter(|earlier| earlier.end() >= at) {
            active.add(&earlier.claims());
        }
        for earlier in plan.iter().filter(|earlier| earlier.recovers_at() >= at) {
            for (target, class) in earlier.claims() {
                let is_faulty =
                    matches!(class, TargetClass::Server | TargetClass::Wire | TargetClass::Rolling);
                if is_faulty {
                    active.add(&[(target, TargetClass::RecentlyFaulty)]);
                }
            }
        }
        if !self.is_old() && at < MIN_OLD_AGE {
            let young =
                (0..self.nodes).map(|node| (Target::Node(node), TargetClass::RecentlyFaulty));
            active.add(&young.collect::<Vec<_>>());
        }
        active
    }
}

/// Returns an exponentially distributed pause.
fn pause(rng: &mut StdRng, mean: Duration) -> Duration {
    mean.mul_f64(-(1.0 - rng.random::<f64>()).ln())
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
