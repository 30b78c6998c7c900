//! Possible actions of a state, and their effects.

use crate::NODES;
use crate::channel::{Channel, GrantState, Verb};
use crate::decision::{self, Decided};
use crate::memory::{Contact, Memory, NodeView};
use crate::node::{Key, ModelNode};
use crate::setting::{Crash, Setting};
use crate::state::{Client, ClientPhase, ExtensionPhase, State};

/// One step: of time, of a client (by its number), of a node or of the network between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A tick passes on every clock.
    Tick,
    /// A client reads T1 and sends its requests to all nodes. Each request may arrive at any time
    /// or never, so this covers requests sent one by one in any order.
    Begin(usize),
    /// A node executes the next request of a client.
    Deliver(usize, usize),
    /// The next request of a client to a node is lost.
    Lose(usize, usize),
    /// A client receives a node's grant, and decides if the grant completes a quorum.
    Receive(usize, usize),
    /// A client ends an undecided attempt, by timeout or because its future was dropped.
    GiveUp(usize),
    /// A holder sends an extension to all nodes.
    Extend(usize),
    /// A holder releases its lease, valid or expired.
    Release(usize),
    /// A key expires by its node's clock. Keys of one set may expire at different times.
    Expire(usize, usize),
    /// A node crashes and loses its keys.
    Crash(usize),
    /// A crashed node is up again.
    Restart(usize),
    /// A client connects to a node that it had no connection to.
    Connect(usize, usize),
    /// A client assumes that a node is unreachable.
    AssumeUnreachable(usize, usize),
}

impl<const C: usize, const K: usize> State<C, K> {
    /// Collects the possible actions in `found`.
    pub(crate) fn actions(&self, setting: &Setting, found: &mut Vec<Action>) {
        found.clear();
        found.push(Action::Tick);
        for client in 0..C {
            self.client_actions(setting, client, found);
        }
        for name in 0..NODES {
            self.node_actions(setting, name, found);
        }
    }

    fn node_actions(&self, setting: &Setting, name: usize, found: &mut Vec<Action>) {
        let node = &self.nodes[name];
        for (place, key) in node.keys().iter().enumerate() {
            if let Key::Held { left, .. } = key
                && (*left <= setting.ahead || setting.jumps)
            {
                found.push(Action::Expire(name, place));
            }
        }
        match node {
            // Like expiry, the end of the downtime follows the node's clock: not before the last
            // key it can have had.
            ModelNode::Away { left } if *left <= setting.ahead => found.push(Action::Restart(name)),
            ModelNode::Up { .. } if self.may_crash(setting, name) => {
                found.push(Action::Crash(name));
            }
            ModelNode::Up { .. } | ModelNode::Away { .. } => {}
        }
    }

    fn may_crash(&self, setting: &Setting, name: usize) -> bool {
        if setting.crash == Crash::Never {
            return false;
        }
        if let Some(guard) = setting.guard {
            let is_old = |node: &ModelNode<K>| matches!(node, ModelNode::Up { age, .. } if *age == guard.term);
            let mut others = (0..NODES).filter(|other| *other != name);
            return !guard.keeps_an_old_node || others.any(|other| is_old(&self.nodes[other]));
        }
        // A crash of a node without keys equals a delay of its replies.
        let forgets = self.nodes[name].keys().iter().any(|key| *key != Key::Free);
        forgets && !self.nodes.iter().any(|node| matches!(node, ModelNode::Away { .. }))
    }

    fn client_actions(&self, setting: &Setting, name: usize, found: &mut Vec<Action>) {
        let client = &self.clients[name];
        match client.phase {
            ClientPhase::Idle if client.attempts < setting.attempts => {
                found.push(Action::Begin(name));
            }
            ClientPhase::Asking { .. } if setting.ends => found.push(Action::GiveUp(name)),
            ClientPhase::Idle | ClientPhase::Asking { .. } => {}
            ClientPhase::Holding { left, extension } => {
                if setting.ends {
                    found.push(Action::Release(name));
                }
                if setting.extends && extension == ExtensionPhase::NotYet && left > 0 {
                    found.push(Action::Extend(name));
                }
            }
        }
        for node in 0..NODES {
            let channel = client.channels[node];
            if channel.requests().next().is_some() {
                let is_connected = client.views[node].contact() == Contact::Up;
                if is_connected && !matches!(self.nodes[node], ModelNode::Away { .. }) {
                    found.push(Action::Deliver(name, node));
                }
                if setting.loses {
                    found.push(Action::Lose(name, node));
                }
            }
            if channel.grant() == GrantState::Coming && client.counts(setting, node) {
                found.push(Action::Receive(name, node));
            }
            let Some(guard) = setting.guard.filter(|_| name > 0) else { continue };
            match client.views[node].contact() {
                Contact::Up => {}
                Contact::None if guard.assumes_unreachable => {
                    found.extend([
                        Action::Connect(name, node),
                        Action::AssumeUnreachable(name, node),
                    ]);
                }
                _ => found.push(Action::Connect(name, node)),
            }
        }
    }

    #[must_use]
    pub(crate) fn after(mut self, setting: &Setting, action: Action) -> Self {
        match action {
            Action::Tick => self.tick(setting),
            Action::Begin(client) => {
                let client = &mut self.clients[client];
                client.attempts += 1;
                client.phase = ClientPhase::Asking { age: 0 };
                client.send_to_all(Verb::Set);
            }
            Action::Deliver(client, node) => self.deliver(setting, client, node),
            Action::Lose(client, node) => {
                self.clients[client].channels[node].pop();
            }
            Action::Receive(client, node) => receive(setting, &mut self.clients[client], node),
            Action::GiveUp(client) | Action::Release(client) => end(&mut self.clients[client]),
            Action::Extend(client) => {
                let client = &mut self.clients[client];
                if let ClientPhase::Holding { extension, .. } = &mut client.phase {
                    *extension = ExtensionPhase::Asking(0);
                }
                client.send_to_all(Verb::Extend);
            }
            Action::Crash(node) if setting.crash == Crash::StaysAway => {
                self.nodes[node] = ModelNode::Away { left: setting.ttl };
            }
            Action::Expire(node, key) => self.nodes[node].keys_mut()[key] = Key::Free,
            Action::Crash(node) => {
                self.nodes[node] = ModelNode::empty(0);
                if setting.guard.is_some() {
                    self.clients[1].lose(node);
                }
            }
            Action::Restart(node) => self.nodes[node] = ModelNode::empty(0),
            Action::Connect(client, node) => self.connect(setting, client, node),
            Action::AssumeUnreachable(client, node) => {
                let client = &mut self.clients[client];
                client.views = client.memory(setting).assume_unreachable(node);
            }
        }
        if setting.guard.is_some() {
            self.prune(setting);
        }
        if setting.compares {
            self.reduce(setting);
        }
        self
    }

    fn tick(&mut self, setting: &Setting) {
        self.nodes.iter_mut().for_each(|node| node.tick(setting.oldest()));
        for client in &mut self.clients {
            client.views.iter_mut().for_each(NodeView::tick);
            match &mut client.phase {
                ClientPhase::Idle => {}
                // No validity exceeds the ttl, so larger ages need no distinction.
                ClientPhase::Asking { age } => *age = (*age + 1).min(setting.ttl),
                ClientPhase::Holding { left, extension } => {
                    *left = left.saturating_sub(1);
                    if let ExtensionPhase::Asking(age) = extension {
                        *age = (*age + 1).min(setting.ttl);
                    }
                }
            }
        }
    }

    fn deliver(&mut self, setting: &Setting, name: usize, node: usize) {
        let client = &mut self.clients[name];
        let request = client.channels[node].pop().expect("a delivered request was sent");
        if !self.nodes[node].serve(setting, name, request) {
            return;
        }
        if let Some(guard) = setting.guard
            && let ModelNode::Up { age, .. } = self.nodes[node]
            && name == 0
        {
            client.views[node] = NodeView::of_age(guard, age);
        }
        let awaited = match client.phase {
            ClientPhase::Asking { .. } => Some(Verb::Set),
            ClientPhase::Holding { extension: ExtensionPhase::Asking(_), .. } => Some(Verb::Extend),
            _ => None,
        };
        if request.attempt == client.attempt() && awaited == Some(request.verb) {
            client.channels[node].set_grant(GrantState::Coming);
        }
    }

    /// A guard matters to the second holder, which is B. A represents any client that may have held
    /// first: it makes no connections, and knows the nodes' ages. So a branch ends once either
    /// client is too late, or B holds and A does not. A's pending requests are dropped once A
    /// holds, because they can only keep B from the lock.
    fn prune(&mut self, setting: &Setting) {
        let is_late = |client: &Client| match client.phase {
            ClientPhase::Idle => client.attempts == setting.attempts,
            ClientPhase::Asking { age } => age == setting.ttl,
            ClientPhase::Holding { left, .. } => left == 0,
        };
        let b_holds = matches!(self.clients[1].phase, ClientPhase::Holding { .. });
        let a_holds = self.believes(setting, 0);
        if self.clients.iter().any(is_late) || b_holds && !a_holds {
            *self = Self::start(setting);
            self.clients.iter_mut().for_each(|client| client.attempts = setting.attempts);
        } else if a_holds {
            self.clients[0].channels = [Channel::default(); NODES];
        }
    }

    /// Requests and grants on the old connection are lost.
    fn connect(&mut self, setting: &Setting, client: usize, node: usize) {
        let ModelNode::Up { age, .. } = self.nodes[node] else {
            unreachable!("with a guard, a node restarts at once")
        };
        let client = &mut self.clients[client];
        client.views = client.memory(setting).connect(node, age);
        if client.channels[node].grant() == GrantState::Coming {
            client.channels[node].set_grant(GrantState::None);
        }
    }

    /// Whether a grant of `node` is on its way to `client`.
    pub(crate) fn is_coming(&self, client: usize, node: usize) -> bool {
        self.clients[client].channels[node].grant() == GrantState::Coming
    }

    /// Decision of `client` if it received the grant of `node` now.
    pub(crate) fn verdict(&self, setting: &Setting, client: usize, node: usize) -> Decided {
        verdict(setting, &self.clients[client], node)
    }
}

impl Client {
    fn memory(&self, setting: &Setting) -> Memory {
        Memory::new(setting.guard.expect("node views need a guard"), self.views)
    }

    /// Whether a grant of `node` counts now.
    pub(crate) fn counts(&self, setting: &Setting, node: usize) -> bool {
        setting.guard.is_none() || self.memory(setting).counts(node)
    }

    /// `node` has restarted. Requests sent to it are lost; requests that wait for a connection are
    /// kept.
    fn lose(&mut self, node: usize) {
        if self.views[node].contact() == Contact::Up {
            self.views[node].lose();
            self.channels[node].retain(|_| false);
        }
    }
}

fn verdict(setting: &Setting, client: &Client, node: usize) -> Decided {
    let grants = client.received().chain([node]);
    match client.phase {
        ClientPhase::Asking { age } => decision::acquire(setting, grants, age),
        ClientPhase::Holding { left, extension: ExtensionPhase::Asking(age) } => {
            decision::extend(setting, grants, age, left)
        }
        _ => Decided::Open,
    }
}

fn receive(setting: &Setting, client: &mut Client, node: usize) {
    match verdict(setting, client, node) {
        Decided::Open => client.channels[node].set_grant(GrantState::Received),
        Decided::Held(left) => {
            let extension = match client.phase {
                ClientPhase::Holding { .. } => ExtensionPhase::Over,
                _ => ExtensionPhase::NotYet,
            };
            client.phase = ClientPhase::Holding { left, extension };
            // Later votes are recorded without effect (I2).
            client.channels.iter_mut().for_each(|channel| channel.set_grant(GrantState::None));
        }
        Decided::Over | Decided::TooLate => end(client),
    }
}

/// The end of an attempt or lease sends releases to all nodes (I5).
fn end(client: &mut Client) {
    client.phase = ClientPhase::Idle;
    client.send_to_all(Verb::Release);
    for (channel, view) in client.channels.iter_mut().zip(&client.views) {
        // Requests that waited for a connection are discarded.
        if view.contact() != Contact::Up {
            channel.retain(|_| false);
        }
    }
}
