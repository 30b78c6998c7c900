//! A state of the whole system, and its form up to the names of nodes and clients.

use crate::NODES;
use crate::decision;
use crate::line::{Grant, Line, Verb};
use crate::setting::Setting;

/// A node: what it has at the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Node {
    /// Nothing.
    Free,
    /// The value of one attempt of one client, to expire in so many ticks.
    Held {
        /// The client.
        owner: u8,
        /// Its attempt.
        attempt: u8,
        /// The ticks to go by the clients' clock.
        left: u8,
    },
    /// It has crashed, and should stay away for so many ticks.
    Away {
        /// The ticks to go.
        left: u8,
    },
}

/// Where the one extension of a lease stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Extension {
    /// Not begun.
    NotYet,
    /// Under way for so many ticks.
    Asking(u8),
    /// Decided.
    Over,
}

/// What a client is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    /// Nothing.
    Idle,
    /// It has asked for the lock, with T1 so many ticks ago.
    Asking {
        /// The ticks since T1.
        age: u8,
    },
    /// It got the lock, valid for so many ticks more; 0 is a lease that has expired.
    Holding {
        /// The ticks to go.
        left: u8,
        /// Its extension.
        extension: Extension,
    },
}

/// A client: what it does, and what is under way between it and each node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Client {
    pub(crate) lines: [Line; NODES],
    pub(crate) phase: Phase,
    pub(crate) attempts: u8,
}

impl Client {
    /// The attempt under way.
    pub(crate) fn attempt(&self) -> u8 {
        self.attempts - 1
    }

    pub(crate) fn send_to_all(&mut self, verb: Verb) {
        let attempt = self.attempt();
        for line in &mut self.lines {
            line.push(verb, attempt);
            line.set_grant(Grant::None);
        }
    }

    /// The nodes that it has heard a grant from in the present round.
    pub(crate) fn heard(&self) -> impl Iterator<Item = usize> {
        (0..NODES).filter(|node| self.lines[*node].grant() == Grant::Heard)
    }
}

/// A state of `C` clients and the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct State<const C: usize> {
    pub(crate) nodes: [Node; NODES],
    pub(crate) clients: [Client; C],
}

impl<const C: usize> State<C> {
    /// All is free, and nobody has asked.
    pub(crate) fn start() -> Self {
        let lines = [Line::default(); NODES];
        let client = Client { lines, phase: Phase::Idle, attempts: 0 };
        Self { nodes: [Node::Free; NODES], clients: [client; C] }
    }

    /// Whether `client` believes, by its own clock, that it holds the lock.
    pub(crate) fn believes(&self, setting: &Setting, client: usize) -> bool {
        match self.clients[client].phase {
            Phase::Holding { left, .. } => decision::believes(setting, left),
            _ => false,
        }
    }

    /// How many clients believe that they hold the lock.
    pub(crate) fn holders(&self, setting: &Setting) -> usize {
        (0..C).filter(|client| self.believes(setting, *client)).count()
    }

    /// Forgets what can make no difference any more, where releases compare.
    ///
    /// - A release whose value is not on the node, with no request before it that could put it
    ///   there: whether and when it arrives changes nothing, and it has no answer.
    /// - The ticks left of a key whose release is under way: it can go at any time. (Not if the
    ///   release can be lost.)
    pub(crate) fn forget(&mut self, setting: &Setting) {
        for (name, client) in self.clients.iter_mut().enumerate() {
            for (line, node) in client.lines.iter_mut().zip(&mut self.nodes) {
                if !line.has_release() {
                    continue;
                }
                let mut on_node = None;
                if let Node::Held { owner, attempt, left } = node
                    && usize::from(*owner) == name
                {
                    on_node = Some((*attempt, left));
                }
                let mut live: u8 = on_node.as_ref().map_or(0, |(attempt, _)| 1 << attempt);
                line.retain(|request| {
                    if request.verb == Verb::Set {
                        live |= 1 << request.attempt;
                    }
                    request.verb != Verb::Release || live & (1 << request.attempt) != 0
                });
                if let Some((attempt, left)) = on_node
                    && !setting.loses
                    && line.requests().any(|it| it.verb == Verb::Release && it.attempt == attempt)
                {
                    *left = 0;
                }
            }
        }
    }

    /// The same state for all that differ only in the names of nodes and clients: nothing in the
    /// model knows a name. Given one order of the clients, they keep their names.
    pub(crate) fn nameless(&self, orders: &[[usize; C]]) -> Self {
        let rank = |client: &usize| (self.clients[*client].phase, self.clients[*client].attempts);
        // Any order by rank will do, and often there is only one.
        let is_ranked = |order: &&[usize; C]| orders.len() == 1 || order.is_sorted_by_key(rank);
        let ranked = orders.iter().filter(is_ranked);
        let named = ranked.map(|order| self.with_clients_in(order).with_nodes_sorted());
        named.min().expect("there is an order")
    }

    fn with_clients_in(&self, order: &[usize; C]) -> Self {
        let mut it = *self;
        it.clients = order.map(|from| self.clients[from]);
        for node in &mut it.nodes {
            if let Node::Held { owner, .. } = node {
                let is_owner = |from: &usize| *from == usize::from(*owner);
                let place = order.iter().position(is_owner).expect("an order has all");
                *owner = u8::try_from(place).expect("few clients");
            }
        }
        it
    }

    fn with_nodes_sorted(mut self) -> Self {
        let column =
            |it: &Self, node| (it.nodes[node], it.clients.map(|client| client.lines[node]));
        for (a, b) in [(0, 1), (1, 2), (0, 1)] {
            if column(&self, a) > column(&self, b) {
                self.nodes.swap(a, b);
                self.clients.iter_mut().for_each(|client| client.lines.swap(a, b));
            }
        }
        self
    }
}

/// Every order of `C` clients.
pub(crate) fn orders<const C: usize>() -> Vec<[usize; C]> {
    let mut found = vec![std::array::from_fn(|place| place)];
    for place in 1..C {
        for mut order in found.clone() {
            for other in 0..place {
                order.swap(other, place);
                found.push(order);
                order.swap(other, place);
            }
        }
    }
    found
}
