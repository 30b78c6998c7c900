//! A state of the whole system, and its canonical form without the names of nodes, clients and
//! keys.

use crate::NODES;
use crate::channel::{Channel, GrantState, Verb};
use crate::decision;
use crate::memory::NodeView;
use crate::node::{Key, ModelNode};
use crate::setting::Setting;

/// The phase of a lease's only extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ExtensionPhase {
    NotYet,
    /// The client has sent the extension to the nodes. The number counts the ticks since then, up
    /// to the ttl.
    Asking(u8),
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ClientPhase {
    /// The client has no attempt and no lease.
    Idle,
    /// The client has sent the requests of an attempt.
    Asking {
        /// The number of ticks since the attempt started (T1), up to the ttl.
        age: u8,
    },
    /// The client has acquired the lock.
    Holding {
        /// The remaining validity in ticks, or 0 for an expired lease.
        left: u8,
        extension: ExtensionPhase,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Client {
    pub(crate) channels: [Channel; NODES],
    pub(crate) views: [NodeView; NODES],
    pub(crate) phase: ClientPhase,
    pub(crate) attempts: u8,
}

impl Client {
    pub(crate) fn attempt(&self) -> u8 {
        self.attempts - 1
    }

    pub(crate) fn send_to_all(&mut self, verb: Verb) {
        let attempt = self.attempt();
        for channel in &mut self.channels {
            channel.push(verb, attempt);
            channel.set_grant(GrantState::None);
        }
    }

    /// Returns the nodes whose grants the client has received in the current round.
    pub(crate) fn received(&self) -> impl Iterator<Item = usize> {
        (0..NODES).filter(|node| self.channels[*node].grant() == GrantState::Received)
    }
}

/// A state of `C` clients, and of nodes with `K` keys each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct State<const C: usize, const K: usize> {
    pub(crate) nodes: [ModelNode<K>; NODES],
    pub(crate) clients: [Client; C],
}

impl<const C: usize, const K: usize> State<C, K> {
    pub(crate) fn start(setting: &Setting) -> Self {
        let is_new = |name: usize| name > 0 && setting.guard.is_some_and(|guard| guard.is_new);
        let clients = std::array::from_fn(|name| {
            let view = if is_new(name) { NodeView::NEW } else { NodeView::default() };
            let channels = [Channel::default(); NODES];
            Client { channels, views: [view; NODES], phase: ClientPhase::Idle, attempts: 0 }
        });
        let is_fresh = setting.guard.is_some_and(|guard| guard.is_fresh);
        let age = if is_fresh { 0 } else { setting.oldest() };
        Self { nodes: [ModelNode::empty(age); NODES], clients }
    }

    /// Returns true if `client` believes by its own clock that it holds the lock.
    pub(crate) fn believes(&self, setting: &Setting, client: usize) -> bool {
        match self.clients[client].phase {
            ClientPhase::Holding { left, .. } => decision::believes(setting, left),
            _ => false,
        }
    }

    pub(crate) fn holders(&self, setting: &Setting) -> usize {
        (0..C).filter(|client| self.believes(setting, *client)).count()
    }

    /// Returns true if two clients believe that they hold the same key.
    pub(crate) fn is_broken(&self, setting: &Setting) -> bool {
        let holds = |client: &usize| self.believes(setting, *client);
        let conflicts = |one: usize| {
            let mut others = (0..one).filter(|other| setting.conflict(one, *other));
            others.any(|other| holds(&other))
        };
        (0..C).filter(holds).any(conflicts)
    }

    /// Removes details that have no further effect, provided that releases compare values:
    ///
    /// - Releases whose value is neither on the node nor in an earlier request. Such a release has
    ///   no effect and gets no reply.
    /// - The remaining ticks of a key whose release is pending, because the release can delete the
    ///   key at any time. This reduction requires that the release cannot be lost.
    pub(crate) fn reduce(&mut self, setting: &Setting) {
        for (name, client) in self.clients.iter_mut().enumerate() {
            for (channel, node) in client.channels.iter_mut().zip(&mut self.nodes) {
                if !channel.has_release() {
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
                channel.retain(|request| {
                    if request.verb == Verb::Set {
                        live |= 1 << request.attempt;
                    }
                    request.verb != Verb::Release || live & (1 << request.attempt) != 0
                });
                for key in node.keys_mut() {
                    if let Key::Held { owner, attempt, left } = key
                        && usize::from(*owner) == name
                        && !setting.loses
                        && channel.has_release_of(*attempt)
                    {
                        *left = 0;
                    }
                }
            }
        }
    }

    /// Returns the canonical form of the state. States that differ only in the names of nodes,
    /// clients and keys have the same canonical form. The model does not depend on names. If
    /// `orders` has a single order, clients and keys keep their names.
    pub(crate) fn canonical(&self, orders: &Orders<C, K>) -> Self {
        let rank = |client: &usize| (self.clients[*client].phase, self.clients[*client].attempts);
        // If every order of clients is possible, only orders sorted by rank need a comparison.
        // Often only one such order exists.
        let is_ranked =
            |order: &&Order<C, K>| !orders.is_symmetric || order.clients.is_sorted_by_key(rank);
        let ranked = orders.all.iter().filter(is_ranked);
        let named = ranked.map(|order| self.in_order(order).with_nodes_sorted());
        named.min().expect("at least one order")
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
                    *owner =
                        u8::try_from(place.expect("a client in every order")).expect("few clients");
                }
            }
        }
        it
    }

    fn with_nodes_sorted(mut self) -> Self {
        let of = |client: Client, node: usize| (client.channels[node], client.views[node]);
        let column = |it: &Self, node| (it.nodes[node], it.clients.map(|client| of(client, node)));
        for (a, b) in [(0, 1), (1, 2), (0, 1)] {
            if column(&self, a) > column(&self, b) {
                self.nodes.swap(a, b);
                for client in &mut self.clients {
                    client.channels.swap(a, b);
                    client.views.swap(a, b);
                }
            }
        }
        self
    }
}

struct Order<const C: usize, const K: usize> {
    clients: [usize; C],
    keys: [usize; K],
}

/// The orders of clients and keys that leave each client's set of keys unchanged.
pub(crate) struct Orders<const C: usize, const K: usize> {
    all: Vec<Order<C, K>>,
    /// Whether every order of the clients is possible.
    is_symmetric: bool,
}

impl<const C: usize, const K: usize> Orders<C, K> {
    /// Creates a set with the identity order only, so that clients and keys keep their names.
    pub(crate) fn names() -> Self {
        Self { all: vec![Order { clients: identity(), keys: identity() }], is_symmetric: false }
    }

    pub(crate) fn all(setting: &Setting) -> Self {
        let wants = |client: usize, key: usize| setting.sets[client].contains(&key);
        let mut all = Vec::new();
        for clients in orders::<C>() {
            if setting.guard.is_some() && clients != identity() {
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
        let is_possible = |order: &[usize; C]| all.iter().any(|it| it.clients == *order);
        let is_symmetric = orders::<C>().iter().all(is_possible);
        Self { all, is_symmetric }
    }
}

const fn identity<const N: usize>() -> [usize; N] {
    let mut order = [0; N];
    let mut place = 0;
    while place < N {
        order[place] = place;
        place += 1;
    }
    order
}

fn orders<const N: usize>() -> Vec<[usize; N]> {
    let mut found = vec![identity()];
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
