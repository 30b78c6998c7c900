//! A state of the whole system, and its form up to the names of nodes and clients.

use crate::NODES;
use crate::decision;
use crate::line::{GrantState, Line, Verb};
use crate::memory::Sight;
use crate::node::{Key, ModelNode};
use crate::setting::Setting;

/// Where the one extension of a lease stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ExtensionPhase {
    /// Not begun.
    NotYet,
    /// Under way for so many ticks.
    Asking(u8),
    /// Decided.
    Over,
}

/// What a client is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ClientPhase {
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
        extension: ExtensionPhase,
    },
}

/// A client: what it does, and what is under way between it and each node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Client {
    pub(crate) lines: [Line; NODES],
    pub(crate) sights: [Sight; NODES],
    pub(crate) phase: ClientPhase,
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
            line.set_grant(GrantState::None);
        }
    }

    /// The nodes that it has heard a grant from in the present round.
    pub(crate) fn heard(&self) -> impl Iterator<Item = usize> {
        (0..NODES).filter(|node| self.lines[*node].grant() == GrantState::Heard)
    }
}

/// A state of `C` clients and the nodes with `K` keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct State<const C: usize, const K: usize> {
    pub(crate) nodes: [ModelNode<K>; NODES],
    pub(crate) clients: [Client; C],
}

impl<const C: usize, const K: usize> State<C, K> {
    /// All is free, and nobody has asked.
    pub(crate) fn start(setting: &Setting) -> Self {
        let is_new = |name: usize| name > 0 && setting.guard.is_some_and(|guard| guard.is_new);
        let clients = std::array::from_fn(|name| {
            let sight = if is_new(name) { Sight::NEW } else { Sight::default() };
            let lines = [Line::default(); NODES];
            Client { lines, sights: [sight; NODES], phase: ClientPhase::Idle, attempts: 0 }
        });
        let is_fresh = setting.guard.is_some_and(|guard| guard.is_fresh);
        let age = if is_fresh { 0 } else { setting.oldest() };
        Self { nodes: [ModelNode::empty(age); NODES], clients }
    }

    /// Whether `client` believes, by its own clock, that it holds the lock.
    pub(crate) fn believes(&self, setting: &Setting, client: usize) -> bool {
        match self.clients[client].phase {
            ClientPhase::Holding { left, .. } => decision::believes(setting, left),
            _ => false,
        }
    }

    /// How many clients believe that they hold the lock.
    pub(crate) fn holders(&self, setting: &Setting) -> usize {
        (0..C).filter(|client| self.believes(setting, *client)).count()
    }

    /// Whether two clients believe that they hold a key.
    pub(crate) fn is_broken(&self, setting: &Setting) -> bool {
        let holds = |client: &usize| self.believes(setting, *client);
        let against = |one: usize| {
            let mut others = (0..one).filter(|other| setting.conflict(one, *other));
            others.any(|other| holds(&other))
        };
        (0..C).filter(holds).any(against)
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
                let mut live: u8 = 0;
                for key in node.keys() {
                    if let Key::Held { owner, attempt, .. } = key
                        && usize::from(*owner) == name
                    {
                        live |= 1 << attempt;
                    }
                }
                line.retain(|request| {
                    if request.verb == Verb::Set {
                        live |= 1 << request.attempt;
                    }
                    request.verb != Verb::Release || live & (1 << request.attempt) != 0
                });
                for key in node.keys_mut() {
                    if let Key::Held { owner, attempt, left } = key
                        && usize::from(*owner) == name
                        && !setting.loses
                        && line.has_release_of(*attempt)
                    {
                        *left = 0;
                    }
                }
            }
        }
    }

    /// The same state for all that differ only in the names of nodes, clients and keys: nothing in the
    /// model knows a name. Given one order, clients and keys keep theirs.
    pub(crate) fn nameless(&self, orders: &Orders<C, K>) -> Self {
        let rank = |client: &usize| (self.clients[*client].phase, self.clients[*client].attempts);
        // Where clients can stand in any order, any order by rank will do, and often there is only one.
        let is_ranked =
            |order: &&Order<C, K>| !orders.has_any || order.clients.is_sorted_by_key(rank);
        let ranked = orders.all.iter().filter(is_ranked);
        let named = ranked.map(|order| self.in_order(order).with_nodes_sorted());
        named.min().expect("there is an order")
    }

    fn in_order(&self, order: &Order<C, K>) -> Self {
        let mut it = *self;
        it.clients = order.clients.map(|from| self.clients[from]);
        for node in &mut it.nodes {
            let ModelNode::Up { keys, .. } = node else { continue };
            *keys = order.keys.map(|from| keys[from]);
            for key in keys {
                if let Key::Held { owner, .. } = key {
                    let is_owner = |from: &usize| *from == usize::from(*owner);
                    let place = order.clients.iter().position(is_owner);
                    *owner = u8::try_from(place.expect("an order has all")).expect("few clients");
                }
            }
        }
        it
    }

    fn with_nodes_sorted(mut self) -> Self {
        let of = |client: Client, node: usize| (client.lines[node], client.sights[node]);
        let column = |it: &Self, node| (it.nodes[node], it.clients.map(|client| of(client, node)));
        for (a, b) in [(0, 1), (1, 2), (0, 1)] {
            if column(&self, a) > column(&self, b) {
                self.nodes.swap(a, b);
                for client in &mut self.clients {
                    client.lines.swap(a, b);
                    client.sights.swap(a, b);
                }
            }
        }
        self
    }
}

/// Another order of the clients and the keys.
struct Order<const C: usize, const K: usize> {
    clients: [usize; C],
    keys: [usize; K],
}

/// Orders in which each place wants the same.
pub(crate) struct Orders<const C: usize, const K: usize> {
    all: Vec<Order<C, K>>,
    /// Whether clients can stand in any order.
    has_any: bool,
}

impl<const C: usize, const K: usize> Orders<C, K> {
    /// That of the names alone.
    pub(crate) fn names() -> Self {
        Self { all: vec![Order { clients: in_names(), keys: in_names() }], has_any: false }
    }

    /// All there are.
    pub(crate) fn all(setting: &Setting) -> Self {
        let wants = |client: usize, key: usize| setting.sets[client].contains(&key);
        let mut all = Vec::new();
        for clients in orders::<C>() {
            if setting.guard.is_some() && clients != in_names() {
                continue;
            }
            for keys in orders::<K>() {
                let is_same = |client: usize, key: usize| {
                    wants(client, key) == wants(clients[client], keys[key])
                };
                if (0..C).all(|client| (0..K).all(|key| is_same(client, key))) {
                    all.push(Order { clients, keys });
                }
            }
        }
        let is_found = |order: &[usize; C]| all.iter().any(|it| it.clients == *order);
        let has_any = orders::<C>().iter().all(is_found);
        Self { all, has_any }
    }
}

const fn in_names<const N: usize>() -> [usize; N] {
    let mut order = [0; N];
    let mut place = 0;
    while place < N {
        order[place] = place;
        place += 1;
    }
    order
}

/// Every order of `N` things.
fn orders<const N: usize>() -> Vec<[usize; N]> {
    let mut found = vec![in_names()];
    for place in 1..N {
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
