//! Admission of faults: which targets have faults, and which further faults are allowed.

use crate::nemesis::Kind;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Interval at which a waiting fault checks for expired claims.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Target of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// A node, counted from 0.
    Node(u16),
    /// The place of a permanent client, counted from 0. A killed client is replaced in its place.
    Client(u16),
    /// The place of a temporary client, counted from 0.
    NewClient(u16),
    /// All nodes.
    Network,
}

/// A target, and the kind of fault that it has or is going to have.
pub(crate) type Claim = (Target, Kind);

const NETWORK_DELAYED: Claim = (Target::Network, Kind::Delayed);

/// Maximum number of concurrent faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) nodes: usize,
    pub(crate) clients: usize,
    /// True if clocks may step only for clients that have measured them before.
    pub(crate) is_inside: bool,
}

/// The number of active faults for each claim.
#[derive(Debug, Default)]
pub(crate) struct ActiveFaults(BTreeMap<Claim, usize>);

impl ActiveFaults {
    pub(crate) fn enter(&mut self, claims: &[Claim]) {
        for claim in claims {
            *self.0.entry(*claim).or_default() += 1;
        }
    }

    pub(crate) fn leave(&mut self, claims: &[Claim]) {
        for claim in claims {
            if let Some(times) = self.0.get_mut(claim) {
                *times -= 1;
            }
        }
        self.0.retain(|_, times| *times > 0);
    }

    /// Returns true if all claims are compatible with the active faults.
    pub(crate) fn are_admissible(&self, claims: &[Claim], limits: Limits) -> bool {
        claims.iter().all(|(target, kind)| self.is_admissible(*target, *kind, limits))
    }

    fn is_admissible(&self, target: Target, kind: Kind, limits: Limits) -> bool {
        let is_repeatable = matches!(kind, Kind::Step | Kind::Delayed);
        let is_taken = !is_repeatable && self.0.contains_key(&(target, kind));
        if is_taken || self.excludes(target, kind, limits) {
            return false;
        }
        let broken = self.0.keys().filter(|(_, kind)| kind.breaks()).map(|(one, _)| *one);
        let broken: BTreeSet<_> = broken.chain([target]).collect();
        let nodes = broken.iter().filter(|one| matches!(one, Target::Node(_))).count();
        let clients = broken.iter().filter(|one| matches!(one, Target::Client(_))).count();
        match target {
            Target::Node(_) => !kind.breaks() || nodes <= limits.nodes,
            Target::Client(_) => clients <= limits.clients,
            Target::NewClient(_) | Target::Network => true,
        }
    }

    /// Returns true if an active fault excludes this kind.
    fn excludes(&self, target: Target, kind: Kind, limits: Limits) -> bool {
        let here = |other| self.0.contains_key(&(target, other));
        let anywhere = |other| self.0.keys().any(|(_, kind)| *kind == other);
        match kind {
            // A stopped server cannot execute `FLUSHALL`, and a flushed server must not be killed
            // concurrently.
            Kind::Memory => anywhere(Kind::Server) || anywhere(Kind::Rolling),
            Kind::Rolling => here(Kind::Server) || anywhere(Kind::Memory),
            Kind::Server => anywhere(Kind::Memory) || here(Kind::Rolling) || here(Kind::Witness),
            // A new client must reach the witness while other nodes lose their data.
            Kind::Wire => here(Kind::Witness),
            Kind::Network => anywhere(Kind::Witness),
            Kind::Witness => {
                let is_unfit =
                    [Kind::Server, Kind::Wire, Kind::RecentlyFaulty].into_iter().any(here);
                is_unfit || anywhere(Kind::Witness) || anywhere(Kind::Network)
            }
            // A client cannot detect a step before its first measurement, or if its earlier
            // measurements are less precise than the step.
            Kind::Step => {
                let is_delayed = here(Kind::Delayed) || self.0.contains_key(&NETWORK_DELAYED);
                limits.is_inside && (anywhere(Kind::NewClient) || is_delayed)
            }
            Kind::NewClient => here(Kind::Client) || (limits.is_inside && anywhere(Kind::Step)),
            Kind::Client => here(Kind::NewClient),
            Kind::Clock | Kind::RecentlyFaulty | Kind::Delayed => false,
        }
    }
}

/// Enforces the limits while faults begin and end, because both may be late on a slow machine.
pub(crate) struct Admission {
    state: Mutex<State>,
    left: Condvar,
    limits: Limits,
}

#[derive(Default)]
struct State {
    active: ActiveFaults,
    /// Claims that expire, with their times.
    expiring: Vec<(Claim, Instant)>,
}

impl State {
    fn expire(&mut self, now: Instant) {
        let active = &mut self.active;
        self.expiring.retain(|(claim, until)| {
            let stays = *until > now;
            if !stays {
                active.leave(&[*claim]);
            }
            stays
        });
    }
}

impl Admission {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { state: Mutex::default(), left: Condvar::new(), limits }
    }

    /// Waits until all claims are compatible with the active faults, for at most `limit`.
    pub(crate) fn enter(&self, claims: &[Claim], limit: Duration) -> Option<Permit<'_>> {
        let begun = Instant::now();
        let mut state = self.state();
        loop {
            state.expire(Instant::now());
            if state.active.are_admissible(claims, self.limits) {
                state.active.enter(claims);
                return Some(Permit { admission: self, claims: claims.to_vec() });
            }
            let left = limit.checked_sub(begun.elapsed()).filter(|left| !left.is_zero())?;
            let waited = self.left.wait_timeout(state, left.min(CHECK_INTERVAL));
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Records a claim that expires after `lasts`.
    pub(crate) fn hold_for(&self, claim: Claim, lasts: Duration) {
        let mut state = self.state();
        state.active.enter(&[claim]);
        state.expiring.push((claim, Instant::now() + lasts));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The claims of an active fault. Dropping it releases them.
pub(crate) struct Permit<'a> {
    admission: &'a Admission,
    claims: Vec<Claim>,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.admission.state().active.leave(&self.claims);
        self.admission.left.notify_all();
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {node}"),
            Self::Client(client) => write!(f, "client {client}"),
            Self::NewClient(place) => write!(f, "new client {place}"),
            Self::Network => f.write_str("all nodes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Kind::{
        Client, Delayed, Memory, Network, NewClient, RecentlyFaulty, Rolling, Server, Step, Wire,
        Witness,
    };
    use Target as T;

    const LIMITS: Limits = Limits { nodes: 1, clients: 2, is_inside: true };

    fn active(claims: &[Claim]) -> ActiveFaults {
        let mut active = ActiveFaults::default();
        active.enter(claims);
        active
    }

    #[test]
    fn memory_and_server_faults_exclude_each_other() {
        let limits = Limits { nodes: 3, clients: 2, is_inside: false };
        let mut active = active(&[(T::Node(0), Wire), (T::Network, Network)]);
        assert!(active.is_admissible(T::Network, Memory, limits));
        active.enter(&[(T::Node(1), Server)]);
        assert!(!active.is_admissible(T::Network, Memory, limits));
        active.leave(&[(T::Node(1), Server)]);
        active.enter(&[(T::Network, Memory)]);
        assert!(!active.is_admissible(T::Node(1), Server, limits));
        assert!(!active.is_admissible(T::Node(1), Rolling, limits));
        assert!(active.is_admissible(T::Node(1), Wire, limits));
    }

    #[test]
    fn node_limit_counts_nodes_and_not_faults() {
        let mut active = ActiveFaults::default();
        assert!(active.is_admissible(T::Node(0), Server, LIMITS));
        active.enter(&[(T::Node(0), Server)]);
        assert!(!active.is_admissible(T::Node(0), Server, LIMITS));
        assert!(active.is_admissible(T::Node(0), Wire, LIMITS));
        assert!(!active.is_admissible(T::Node(1), Wire, LIMITS));
        assert!(active.is_admissible(T::Client(1), Client, LIMITS), "clients have their own limit");
        active.leave(&[(T::Node(0), Server)]);
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
        active.enter(&[(T::Node(0), Step)]);
        active.leave(&[(T::Node(0), Step)]);
        assert!(
            !active.is_admissible(T::NewClient(0), NewClient, LIMITS),
            "one of two steps still has an effect"
        );
        active.leave(&[(T::Node(0), Step)]);
        assert!(active.is_admissible(T::NewClient(0), NewClient, LIMITS));
        active.enter(&[(T::NewClient(0), NewClient)]);
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
        active.enter(&[(T::Network, Delayed)]);
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
        let seat =
            admission.enter(&[(T::Node(0), Server)], Duration::ZERO).expect("there is admission");
        assert!(admission.enter(&[(T::Node(1), Server)], Duration::ZERO).is_none());
        drop(seat);
        assert!(admission.enter(&[(T::Node(1), Server)], Duration::ZERO).is_some());
    }

    #[test]
    fn expiring_claims_are_released_at_the_latest_time() {
        let admission = Admission::new(LIMITS);
        let witness = [(T::Node(0), Witness)];
        admission.hold_for((T::Node(0), RecentlyFaulty), Duration::from_millis(200));
        admission.hold_for((T::Node(0), RecentlyFaulty), Duration::from_millis(50));
        let begun = Instant::now();
        assert!(admission.enter(&witness, Duration::from_secs(20)).is_some());
        assert!(begun.elapsed() >= Duration::from_millis(200), "the longest claim counts");
    }
}
