//! Who is broken, and whether another may be.

use crate::nemesis::Kind;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often one who waits looks whether what lingers is over.
const LOOK: Duration = Duration::from_millis(20);

/// To whom something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// A node, counted from 0.
    Node(u16),
    /// A place of a client process, counted from 0: who is killed has a successor there.
    Client(u16),
    /// A place of a client process that comes new and goes again, counted from 0.
    Newcomer(u16),
    /// All nodes, in a way that keeps none from answering.
    Network,
}

/// A target, and in what way it is to be broken.
pub(crate) type Break = (Target, Kind);

const NETWORK_DELAYED: Break = (Target::Network, Kind::Delayed);

/// How many may be broken at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) nodes: usize,
    pub(crate) clients: usize,
    /// Whether clocks only step for clients that have measured them before.
    pub(crate) is_inside: bool,
}

/// Who is broken, and in what way, and how many times.
#[derive(Debug, Default)]
pub(crate) struct Victims(BTreeMap<Break, usize>);

impl Victims {
    pub(crate) fn enter(&mut self, claims: &[Break]) {
        for claim in claims {
            *self.0.entry(*claim).or_default() += 1;
        }
    }

    pub(crate) fn leave(&mut self, claims: &[Break]) {
        for claim in claims {
            if let Some(times) = self.0.get_mut(claim) {
                *times -= 1;
            }
        }
        self.0.retain(|_, times| *times > 0);
    }

    /// Whether all of these may be broken in these ways, too.
    pub(crate) fn have_room(&self, claims: &[Break], limits: Limits) -> bool {
        claims.iter().all(|(target, kind)| self.has_room(*target, *kind, limits))
    }

    fn has_room(&self, target: Target, kind: Kind, limits: Limits) -> bool {
        let is_repeatable = matches!(kind, Kind::Step | Kind::Delayed);
        let is_taken = !is_repeatable && self.0.contains_key(&(target, kind));
        if is_taken || self.rules_out(target, kind, limits) {
            return false;
        }
        let broken = self.0.keys().filter(|(_, kind)| kind.breaks()).map(|(one, _)| *one);
        let broken: BTreeSet<_> = broken.chain([target]).collect();
        let nodes = broken.iter().filter(|one| matches!(one, Target::Node(_))).count();
        let clients = broken.iter().filter(|one| matches!(one, Target::Client(_))).count();
        match target {
            Target::Node(_) => !kind.breaks() || nodes <= limits.nodes,
            Target::Client(_) => clients <= limits.clients,
            Target::Newcomer(_) | Target::Network => true,
        }
    }

    /// Whether somebody is broken in a way that leaves no room for this kind.
    fn rules_out(&self, target: Target, kind: Kind, limits: Limits) -> bool {
        let here = |other| self.0.contains_key(&(target, other));
        let anywhere = |other| self.0.keys().any(|(_, kind)| *kind == other);
        match kind {
            // A server that hangs cannot be told to forget, and one that forgets must not die
            // meanwhile.
            Kind::Memory => anywhere(Kind::Server) || anywhere(Kind::Rolling),
            Kind::Rolling => here(Kind::Server) || anywhere(Kind::Memory),
            Kind::Server => anywhere(Kind::Memory) || here(Kind::Rolling) || here(Kind::Witness),
            // Who comes new while others forget must reach the one that does not.
            Kind::Wire => here(Kind::Witness),
            Kind::Network => anywhere(Kind::Witness),
            Kind::Witness => {
                let is_unfit = [Kind::Server, Kind::Wire, Kind::Shaken].into_iter().any(here);
                is_unfit || anywhere(Kind::Witness) || anywhere(Kind::Network)
            }
            // A client that measures a clock for the first time after a step cannot detect it, nor one whose earlier
            // measurements are less exact than the step.
            Kind::Step => {
                let is_delayed = here(Kind::Delayed) || self.0.contains_key(&NETWORK_DELAYED);
                limits.is_inside && (anywhere(Kind::Newcomer) || is_delayed)
            }
            Kind::Newcomer => here(Kind::Client) || (limits.is_inside && anywhere(Kind::Step)),
            Kind::Client => here(Kind::Newcomer),
            Kind::Clock | Kind::Shaken | Kind::Delayed => false,
        }
    }
}

/// Keeps the limits while faults begin and end: a slow machine can be late with either.
pub(crate) struct Room {
    victims: Mutex<Present>,
    left: Condvar,
    limits: Limits,
}

#[derive(Default)]
struct Present {
    victims: Victims,
    /// What leaves by itself, and when.
    lingering: Vec<(Break, Instant)>,
}

impl Present {
    fn let_go(&mut self, now: Instant) {
        let victims = &mut self.victims;
        self.lingering.retain(|(claim, until)| {
            let stays = *until > now;
            if !stays {
                victims.leave(&[*claim]);
            }
            stays
        });
    }
}

impl Room {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { victims: Mutex::default(), left: Condvar::new(), limits }
    }

    /// Waits until all of these may be broken in these ways; `None` if that takes longer than `limit`.
    pub(crate) fn enter(&self, claims: &[Break], limit: Duration) -> Option<Seat<'_>> {
        let begun = Instant::now();
        let mut present = self.present();
        loop {
            present.let_go(Instant::now());
            if present.victims.have_room(claims, self.limits) {
                present.victims.enter(claims);
                return Some(Seat { room: self, claims: claims.to_vec() });
            }
            let left = limit.checked_sub(begun.elapsed()).filter(|left| !left.is_zero())?;
            let waited = self.left.wait_timeout(present, left.min(LOOK));
            (present, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Notes what will be over by itself.
    pub(crate) fn linger(&self, claim: Break, lasts: Duration) {
        let mut present = self.present();
        present.victims.enter(&[claim]);
        present.lingering.push((claim, Instant::now() + lasts));
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        self.victims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Targets that are broken, until this is dropped.
pub(crate) struct Seat<'a> {
    room: &'a Room,
    claims: Vec<Break>,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.room.present().victims.leave(&self.claims);
        self.room.left.notify_all();
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {node}"),
            Self::Client(client) => write!(f, "client {client}"),
            Self::Newcomer(place) => write!(f, "newcomer {place}"),
            Self::Network => f.write_str("all nodes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Kind::{
        Client, Delayed, Memory, Network, Newcomer, Rolling, Server, Shaken, Step, Wire, Witness,
    };
    use Target as T;

    const LIMITS: Limits = Limits { nodes: 1, clients: 2, is_inside: true };

    fn victims(claims: &[Break]) -> Victims {
        let mut victims = Victims::default();
        victims.enter(claims);
        victims
    }

    #[test]
    fn what_hangs_cannot_be_told_to_forget() {
        let limits = Limits { nodes: 3, clients: 2, is_inside: false };
        let mut victims = victims(&[(T::Node(0), Wire), (T::Network, Network)]);
        assert!(victims.has_room(T::Network, Memory, limits));
        victims.enter(&[(T::Node(1), Server)]);
        assert!(!victims.has_room(T::Network, Memory, limits));
        victims.leave(&[(T::Node(1), Server)]);
        victims.enter(&[(T::Network, Memory)]);
        assert!(!victims.has_room(T::Node(1), Server, limits));
        assert!(!victims.has_room(T::Node(1), Rolling, limits));
        assert!(victims.has_room(T::Node(1), Wire, limits));
    }

    #[test]
    fn a_broken_node_can_be_broken_in_another_way_but_no_other_node() {
        let mut victims = Victims::default();
        assert!(victims.has_room(T::Node(0), Server, LIMITS));
        victims.enter(&[(T::Node(0), Server)]);
        assert!(!victims.has_room(T::Node(0), Server, LIMITS));
        assert!(victims.has_room(T::Node(0), Wire, LIMITS));
        assert!(!victims.has_room(T::Node(1), Wire, LIMITS));
        assert!(victims.has_room(T::Client(1), Client, LIMITS), "clients count apart");
        victims.leave(&[(T::Node(0), Server)]);
        assert!(victims.has_room(T::Node(1), Wire, LIMITS));
    }

    #[test]
    fn clocks_step_on_any_node_and_again_but_not_while_somebody_is_new() {
        let mut victims = victims(&[(T::Node(0), Step), (T::Node(0), Server)]);
        for node in 0..3 {
            assert!(victims.has_room(T::Node(node), Step, LIMITS), "{node}");
        }
        for new in [T::Newcomer(0), T::Client(1)] {
            assert!(!victims.has_room(new, Newcomer, LIMITS), "its first look comes after a step");
        }
        victims.enter(&[(T::Node(0), Step)]);
        victims.leave(&[(T::Node(0), Step)]);
        assert!(!victims.has_room(T::Newcomer(0), Newcomer, LIMITS), "one of two is still felt");
        victims.leave(&[(T::Node(0), Step)]);
        assert!(victims.has_room(T::Newcomer(0), Newcomer, LIMITS));
        victims.enter(&[(T::Newcomer(0), Newcomer)]);
        assert!(!victims.has_room(T::Node(0), Step, LIMITS));
        let outside = Limits { is_inside: false, ..LIMITS };
        assert!(victims.has_room(T::Node(0), Step, outside));
    }

    #[test]
    fn clock_of_a_delayed_node_does_not_step() {
        let mut victims = victims(&[(T::Node(0), Delayed)]);
        assert!(!victims.has_room(T::Node(0), Step, LIMITS));
        assert!(victims.has_room(T::Node(1), Step, LIMITS));
        assert!(victims.has_room(T::Node(0), Delayed, LIMITS), "in two ways at a time");
        victims.enter(&[(T::Network, Delayed)]);
        assert!(!victims.has_room(T::Node(1), Step, LIMITS));
        assert!(victims.has_room(T::Node(1), Step, Limits { is_inside: false, ..LIMITS }));
    }

    #[test]
    fn while_nodes_forget_one_that_does_not_is_old_and_in_reach() {
        let rolling = [(T::Node(0), Witness), (T::Node(1), Rolling), (T::Node(2), Rolling)];
        for unfit in [Server, Wire, Shaken] {
            assert!(!victims(&[(T::Node(0), unfit)]).have_room(&rolling, LIMITS), "{unfit:?}");
        }
        assert!(!victims(&[(T::Network, Network)]).have_room(&rolling, LIMITS));
        assert!(!victims(&[(T::Node(2), Server)]).have_room(&rolling, LIMITS));
        assert!(victims(&[(T::Node(2), Wire)]).have_room(&rolling, LIMITS));
        let victims = victims(&rolling);
        assert!(!victims.has_room(T::Node(0), Server, LIMITS));
        assert!(!victims.has_room(T::Node(0), Wire, LIMITS));
        assert!(!victims.has_room(T::Node(1), Server, LIMITS), "it is on its way");
        assert!(!victims.has_room(T::Network, Network, LIMITS));
        assert!(!victims.has_room(T::Node(1), Witness, LIMITS), "one at a time");
        assert!(victims.has_room(T::Node(1), Wire, LIMITS));
        assert!(victims.has_room(T::Newcomer(0), Newcomer, LIMITS), "that is the point");
    }

    #[test]
    fn who_hangs_is_not_replaced_meanwhile() {
        assert!(!victims(&[(T::Client(0), Client)]).has_room(T::Client(0), Newcomer, LIMITS));
        assert!(!victims(&[(T::Client(0), Newcomer)]).has_room(T::Client(0), Client, LIMITS));
    }

    #[test]
    fn who_leaves_makes_room() {
        let room = Room::new(LIMITS);
        let seat = room.enter(&[(T::Node(0), Server)], Duration::ZERO).expect("there is room");
        assert!(room.enter(&[(T::Node(1), Server)], Duration::ZERO).is_none());
        drop(seat);
        assert!(room.enter(&[(T::Node(1), Server)], Duration::ZERO).is_some());
    }

    #[test]
    fn what_lingers_leaves_by_itself() {
        let room = Room::new(LIMITS);
        let witness = [(T::Node(0), Witness)];
        room.linger((T::Node(0), Shaken), Duration::from_millis(200));
        room.linger((T::Node(0), Shaken), Duration::from_millis(50));
        let begun = Instant::now();
        assert!(room.enter(&witness, Duration::from_secs(20)).is_some());
        assert!(begun.elapsed() >= Duration::from_millis(200), "the longest counts");
    }
}
