//! Admission of faults: which targets have faults, and which further faults may begin.

use crate::nemesis::TargetClass;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The interval at which a waiting fault checks for expired claims.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// A node, numbered from 0.
    Node(u16),
    /// The slot of a permanent client, numbered from 0. A killed client is replaced in its slot.
    Client(u16),
    /// The slot of a temporary client, numbered from 0.
    NewClient(u16),
    Network,
}

/// A target and the class of a fault that affects it, now or soon.
pub(crate) type Claim = (Target, TargetClass);

const NETWORK_DELAYED: Claim = (Target::Network, TargetClass::Delayed);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) nodes: usize,
    pub(crate) clients: usize,
    /// Whether the run is within the guarantee. If so, a clock may step only after all clients have
    /// measured it.
    pub(crate) is_inside: bool,
}

/// The number of active faults per claim.
#[derive(Debug, Default)]
pub(crate) struct ActiveFaults(BTreeMap<Claim, usize>);

impl ActiveFaults {
    pub(crate) fn add(&mut self, claims: &[Claim]) {
        for claim in claims {
            *self.0.entry(*claim).or_default() += 1;
        }
    }

    pub(crate) fn remove(&mut self, claims: &[Claim]) {
        for claim in claims {
            if let Some(times) = self.0.get_mut(claim) {
                *times -= 1;
            }
        }
        self.0.retain(|_, times| *times > 0);
    }

    pub(crate) fn are_admissible(&self, claims: &[Claim], limits: Limits) -> bool {
        claims.iter().all(|(target, class)| self.is_admissible(*target, *class, limits))
    }

    fn is_admissible(&self, target: Target, class: TargetClass, limits: Limits) -> bool {
        let is_repeatable = matches!(class, TargetClass::Step | TargetClass::Delayed);
        let is_taken = !is_repeatable && self.0.contains_key(&(target, class));
        if is_taken || self.excludes(target, class, limits) {
            return false;
        }
        let broken = self.0.keys().filter(|(_, class)| class.breaks()).map(|(one, _)| *one);
        let broken: BTreeSet<_> = broken.chain([target]).collect();
        let nodes = broken.iter().filter(|one| matches!(one, Target::Node(_))).count();
        let clients = broken.iter().filter(|one| matches!(one, Target::Client(_))).count();
        match target {
            Target::Node(_) => !class.breaks() || nodes <= limits.nodes,
            Target::Client(_) => clients <= limits.clients,
            Target::NewClient(_) | Target::Network => true,
        }
    }

    /// Returns true if an active fault forbids a fault of `class` at `target`.
    fn excludes(&self, target: Target, class: TargetClass, limits: Limits) -> bool {
        let here = |other| self.0.contains_key(&(target, other));
        let anywhere = |other| self.0.keys().any(|(_, class)| *class == other);
        match class {
            // A stopped server cannot execute `FLUSHALL`, and a server must not be killed while it
            // is flushed.
            TargetClass::AllData => anywhere(TargetClass::Server) || anywhere(TargetClass::Rolling),
            TargetClass::Rolling => here(TargetClass::Server) || anywhere(TargetClass::AllData),
            TargetClass::Server => {
                anywhere(TargetClass::AllData)
                    || here(TargetClass::Rolling)
                    || here(TargetClass::Witness)
            }
            // A new client must be able to reach the witness while other nodes lose their data.
            TargetClass::Wire => here(TargetClass::Witness),
            TargetClass::Network => anywhere(TargetClass::Witness),
            TargetClass::Witness => {
                let is_unfit =
                    [TargetClass::Server, TargetClass::Wire, TargetClass::RecentlyFaulty]
                        .into_iter()
                        .any(here);
                is_unfit || anywhere(TargetClass::Witness) || anywhere(TargetClass::Network)
            }
            // A client cannot detect a step before its first measurement of the clock, or if its
            // earlier measurements are less precise than the step.
            TargetClass::Step => {
                let is_delayed =
                    here(TargetClass::Delayed) || self.0.contains_key(&NETWORK_DELAYED);
                limits.is_inside && (anywhere(TargetClass::NewClient) || is_delayed)
            }
            TargetClass::NewClient => {
                here(TargetClass::Client) || (limits.is_inside && anywhere(TargetClass::Step))
            }
            TargetClass::Client => here(TargetClass::NewClient),
            TargetClass::Clock | TargetClass::RecentlyFaulty | TargetClass::Delayed => false,
        }
    }
}

/// Decides during a run whether a planned fault may begin. The plan alone cannot enforce the
/// limits, because faults may begin and end late on a slow machine.
pub(crate) struct Admission {
    state: Mutex<State>,
    left: Condvar,
    limits: Limits,
}

#[derive(Default)]
struct State {
    active: ActiveFaults,
    /// Claims that do not belong to a permit, each with the time at which it expires.
    expiring: Vec<(Claim, Instant)>,
}

impl State {
    fn expire(&mut self, now: Instant) {
        let active = &mut self.active;
        self.expiring.retain(|(claim, until)| {
            let stays = *until > now;
            if !stays {
                active.remove(&[*claim]);
            }
            stays
        });
    }
}

impl Admission {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { state: Mutex::default(), left: Condvar::new(), limits }
    }

    /// Waits until all claims are compatible with the active faults. Returns `None` if this takes
    /// longer than `limit`.
    pub(crate) fn acquire_permit(&self, claims: &[Claim], limit: Duration) -> Option<Permit<'_>> {
        let begun = Instant::now();
        let mut state = self.state();
        loop {
            state.expire(Instant::now());
            if state.active.are_admissible(claims, self.limits) {
                state.active.add(claims);
                return Some(Permit { admission: self, claims: claims.to_vec() });
            }
            let left = limit.checked_sub(begun.elapsed()).filter(|left| !left.is_zero())?;
            let waited = self.left.wait_timeout(state, left.min(CHECK_INTERVAL));
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn claim_for(&self, claim: Claim, lasts: Duration) {
        let mut state = self.state();
        state.active.add(&[claim]);
        state.expiring.push((claim, Instant::now() + lasts));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The claims of an active fault. Dropping the permit releases them.
pub(crate) struct Permit<'a> {
    admission: &'a Admission,
    claims: Vec<Claim>,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.admission.state().active.remove(&self.claims);
        self.admission.left.notify_all();
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {node}"),
            Self::Client(client) => write!(f, "client {client}"),
            Self::NewClient(slot) => write!(f, "new client {slot}"),
            Self::Network => f.write_str("all nodes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Target as T;
    use TargetClass::{
        AllData, Client, Delayed, Network, NewClient, RecentlyFaulty, Rolling, Server, Step, Wire,
        Witness,
    };

    const LIMITS: Limits = Limits { nodes: 1, clients: 2, is_inside: true };

    fn active(claims: &[Claim]) -> ActiveFaults {
        let mut active = ActiveFaults::default();
        active.add(claims);
        active
    }

    #[test]
    fn all_data_and_server_faults_exclude_each_other() {
        let limits = Limits { nodes: 3, clients: 2, is_inside: false };
        let mut active = active(&[(T::Node(0), Wire), (T::Network, Network)]);
        assert!(active.is_admissible(T::Network, AllData, limits));
        active.add(&[(T::Node(1), Server)]);
        assert!(!active.is_admissible(T::Network, AllData, limits));
        active.remove(&[(T::Node(1), Server)]);
        active.add(&[(T::Network, AllData)]);
        assert!(!active.is_admissible(T::Node(1), Server, limits));
        assert!(!active.is_admissible(T::Node(1), Rolling, limits));
        assert!(active.is_admissible(T::Node(1), Wire, limits));
    }

    #[test]
    fn node_limit_counts_nodes_and_not_faults() {
        let mut active = ActiveFaults::default();
        assert!(active.is_admissible(T::Node(0), Server, LIMITS));
        active.add(&[(T::Node(0), Server)]);
        assert!(!active.is_admissible(T::Node(0), Server, LIMITS));
        assert!(active.is_admissible(T::Node(0), Wire, LIMITS));
        assert!(!active.is_admissible(T::Node(1), Wire, LIMITS));
        assert!(active.is_admissible(T::Client(1), Client, LIMITS), "clients have their own limit");
        active.remove(&[(T::Node(0), Server)]);
        assert!(active.is_admissible(T::Node(1), Wire, LIMITS));
    }

    #[test]
    fn clock_steps_and_new_clients_exclude_each_other() {
        let mut active = active(&[(T::Node(0), Step), (T::Node(0), Server)]);
        for node in 0..3 {
            assert!(active.is_admissible(T::Node(node), Step, LIMITS), "{node}");
        }
        for new in [T::NewClient(0), T::Client(1)] {
            assert!(
                !active.is_admissible(new, NewClient, LIMITS),
                "its first measurement follows a step"
            );
        }
        active.add(&[(T::Node(0), Step)]);
        active.remove(&[(T::Node(0), Step)]);
        assert!(
            !active.is_admissible(T::NewClient(0), NewClient, LIMITS),
            "one of two steps still has an effect"
        );
        active.remove(&[(T::Node(0), Step)]);
        assert!(active.is_admissible(T::NewClient(0), NewClient, LIMITS));
        active.add(&[(T::NewClient(0), NewClient)]);
        assert!(!active.is_admissible(T::Node(0), Step, LIMITS));
        let outside = Limits { is_inside: false, ..LIMITS };
        assert!(active.is_admissible(T::Node(0), Step, outside));
    }

    #[test]
    fn clock_of_delayed_node_does_not_step() {
        let mut active = active(&[(T::Node(0), Delayed)]);
        assert!(!active.is_admissible(T::Node(0), Step, LIMITS));
        assert!(active.is_admissible(T::Node(1), Step, LIMITS));
        assert!(active.is_admissible(T::Node(0), Delayed, LIMITS), "two delays at a time");
        active.add(&[(T::Network, Delayed)]);
        assert!(!active.is_admissible(T::Node(1), Step, LIMITS));
        assert!(active.is_admissible(T::Node(1), Step, Limits { is_inside: false, ..LIMITS }));
    }

    #[test]
    fn rolling_restart_needs_an_old_reachable_witness() {
        let rolling = [(T::Node(0), Witness), (T::Node(1), Rolling), (T::Node(2), Rolling)];
        for unfit in [Server, Wire, RecentlyFaulty] {
            assert!(!active(&[(T::Node(0), unfit)]).are_admissible(&rolling, LIMITS), "{unfit:?}");
        }
        assert!(!active(&[(T::Network, Network)]).are_admissible(&rolling, LIMITS));
        assert!(!active(&[(T::Node(2), Server)]).are_admissible(&rolling, LIMITS));
        assert!(active(&[(T::Node(2), Wire)]).are_admissible(&rolling, LIMITS));
        let active = active(&rolling);
        assert!(!active.is_admissible(T::Node(0), Server, LIMITS));
        assert!(!active.is_admissible(T::Node(0), Wire, LIMITS));
        assert!(!active.is_admissible(T::Node(1), Server, LIMITS), "its restart is pending");
        assert!(!active.is_admissible(T::Network, Network, LIMITS));
        assert!(!active.is_admissible(T::Node(1), Witness, LIMITS), "one witness at a time");
        assert!(active.is_admissible(T::Node(1), Wire, LIMITS));
        assert!(
            active.is_admissible(T::NewClient(0), NewClient, LIMITS),
            "new clients are allowed"
        );
    }

    #[test]
    fn stopped_client_is_not_replaced() {
        assert!(!active(&[(T::Client(0), Client)]).is_admissible(T::Client(0), NewClient, LIMITS));
        assert!(!active(&[(T::Client(0), NewClient)]).is_admissible(T::Client(0), Client, LIMITS));
    }

    #[test]
    fn dropped_permit_releases_its_claims() {
        let admission = Admission::new(LIMITS);
        let seat = admission
            .acquire_permit(&[(T::Node(0), Server)], Duration::ZERO)
            .expect("there is admission");
        assert!(admission.acquire_permit(&[(T::Node(1), Server)], Duration::ZERO).is_none());
        drop(seat);
        assert!(admission.acquire_permit(&[(T::Node(1), Server)], Duration::ZERO).is_some());
    }

    #[test]
    fn expiring_claims_are_released_at_the_latest_time() {
        let admission = Admission::new(LIMITS);
        let witness = [(T::Node(0), Witness)];
        admission.claim_for((T::Node(0), RecentlyFaulty), Duration::from_millis(200));
        admission.claim_for((T::Node(0), RecentlyFaulty), Duration::from_millis(50));
        let begun = Instant::now();
        assert!(admission.acquire_permit(&witness, Duration::from_secs(20)).is_some());
        assert!(begun.elapsed() >= Duration::from_millis(200), "the longest claim counts");
    }
}
