//! Who is broken, and whether another may be.

use crate::nemesis::Kind;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// To whom something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// A node, counted from 0.
    Node(u16),
    /// A place of a client process, counted from 0: who is killed has a successor there.
    Client(u16),
    /// All nodes, in a way that keeps none from answering.
    Network,
}

/// How many may be broken at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) nodes: usize,
    pub(crate) clients: usize,
}

/// Who is broken, and in what way.
#[derive(Debug, Default)]
pub(crate) struct Victims(BTreeSet<(Target, Kind)>);

impl Victims {
    pub(crate) fn enter(&mut self, target: Target, kind: Kind) {
        self.0.insert((target, kind));
    }

    pub(crate) fn leave(&mut self, target: Target, kind: Kind) {
        self.0.remove(&(target, kind));
    }

    /// Whether `target` may be broken in that way, too.
    pub(crate) fn has_room(&self, target: Target, kind: Kind, limits: Limits) -> bool {
        if self.0.contains(&(target, kind)) || self.rules_out(kind) {
            return false;
        }
        let mut broken: BTreeSet<_> = self.0.iter().map(|(one, _)| *one).collect();
        broken.insert(target);
        let nodes = broken.iter().filter(|one| matches!(one, Target::Node(_))).count();
        let clients = broken.iter().filter(|one| matches!(one, Target::Client(_))).count();
        match target {
            Target::Node(_) => nodes <= limits.nodes,
            Target::Client(_) => clients <= limits.clients,
            Target::Network => true,
        }
    }

    /// Whether somebody is broken in a way that leaves no room for this kind: a server that hangs
    /// cannot be told to forget, and one that forgets must not die meanwhile.
    fn rules_out(&self, kind: Kind) -> bool {
        let at_work = |other| self.0.iter().any(|(_, kind)| *kind == other);
        match kind {
            Kind::Memory => at_work(Kind::Server),
            Kind::Server => at_work(Kind::Memory),
            Kind::Clock | Kind::Wire | Kind::Client | Kind::Network => false,
        }
    }
}

/// Keeps the limits while faults begin and end: a slow machine can be late with either.
pub(crate) struct Room {
    victims: Mutex<Victims>,
    left: Condvar,
    limits: Limits,
}

impl Room {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { victims: Mutex::default(), left: Condvar::new(), limits }
    }

    /// Waits until `target` may be broken in that way; `None` if that takes longer than `limit`.
    pub(crate) fn enter(&self, target: Target, kind: Kind, limit: Duration) -> Option<Seat<'_>> {
        let is_full = |victims: &mut Victims| !victims.has_room(target, kind, self.limits);
        let waited = self.left.wait_timeout_while(self.victims(), limit, is_full);
        let (mut victims, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return None;
        }
        victims.enter(target, kind);
        Some(Seat { room: self, target, kind })
    }

    fn victims(&self) -> MutexGuard<'_, Victims> {
        self.victims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A target that is broken, until this is dropped.
pub(crate) struct Seat<'a> {
    room: &'a Room,
    target: Target,
    kind: Kind,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.room.victims().leave(self.target, self.kind);
        self.room.left.notify_all();
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {node}"),
            Self::Client(client) => write!(f, "client {client}"),
            Self::Network => f.write_str("all nodes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Kind::{Client, Memory, Network, Server, Wire};
    use Target as T;

    const LIMITS: Limits = Limits { nodes: 1, clients: 2 };

    #[test]
    fn what_hangs_cannot_be_told_to_forget() {
        let limits = Limits { nodes: 3, clients: 2 };
        let mut victims = Victims::default();
        victims.enter(T::Node(0), Wire);
        victims.enter(T::Network, Network);
        assert!(victims.has_room(T::Network, Memory, limits));
        victims.enter(T::Node(1), Server);
        assert!(!victims.has_room(T::Network, Memory, limits));
        victims.leave(T::Node(1), Server);
        victims.enter(T::Network, Memory);
        assert!(!victims.has_room(T::Node(1), Server, limits));
        assert!(victims.has_room(T::Node(1), Wire, limits));
    }

    #[test]
    fn a_broken_node_can_be_broken_in_another_way_but_no_other_node() {
        let mut victims = Victims::default();
        assert!(victims.has_room(T::Node(0), Server, LIMITS));
        victims.enter(T::Node(0), Server);
        assert!(!victims.has_room(T::Node(0), Server, LIMITS));
        assert!(victims.has_room(T::Node(0), Wire, LIMITS));
        assert!(!victims.has_room(T::Node(1), Wire, LIMITS));
        assert!(victims.has_room(T::Client(1), Client, LIMITS), "clients count apart");
        victims.leave(T::Node(0), Server);
        assert!(victims.has_room(T::Node(1), Wire, LIMITS));
    }

    #[test]
    fn who_leaves_makes_room() {
        let room = Room::new(LIMITS);
        let seat = room.enter(T::Node(0), Server, Duration::ZERO).expect("there is room");
        assert!(room.enter(T::Node(1), Server, Duration::ZERO).is_none());
        drop(seat);
        assert!(room.enter(T::Node(1), Server, Duration::ZERO).is_some());
    }
}
