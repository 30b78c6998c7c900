//! The actions that are possible in a state, and their effects.

use crate::NODES;
use crate::channel::{Channel, GrantState, Verb};
use crate::decision::{self, Decided};
use crate::memory::{Contact, Memory, NodeView};
use crate::node::{Key, ModelNode};
use crate::setting::{Crash, Setting};
use crate::state::{Client, ClientPhase, ExtensionPhase, State};

/// One step of a client, of a node, of the network or of time. Clients and nodes are numbered from
/// 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Tick,
    /// A client starts an attempt: it records the start time (T1) and sends its requests to all
    /// nodes. Each request may arrive at any time or never, so this action covers requests sent one
    /// by one in any order.
    Begin(usize),
    Deliver(usize, usize),
    Lose(usize, usize),
    /// A client receives a node's grant. If the grant completes a quorum, the client decides.
    Receive(usize, usize),
    /// A client abandons an undecided attempt, because of a timeout or because its future was
    /// dropped.
    GiveUp(usize),
    Extend(usize),
    /// A holder releases its lease, which may already have expired.
    Release(usize),
    /// A key expires by its node's clock. Keys of one set may expire at different times.
    Expire(usize, usize),
    /// A node crashes and loses its keys.
    Crash(usize),
    Restart(usize),
    /// A client connects to a node to which it has no connection.
    Connect(usize, usize),
    AssumeUnreachable(usize, usize),
}

impl<const C: usize, const K: usize> State<C, K> {
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
            // The node's clock measures the downtime, as it measures expiry. The downtime is a full
            // ttl, so it outlasts every key that the node held.
            ModelNode::Down { left } if *left <= setting.ahead => found.push(Action::Restart(name)),
            ModelNode::Up { .. } if self.may_crash(setting, name) => {
                found.push(Action::Crash(name));
            }
            ModelNode::Up { .. } | ModelNode::Down { .. } => {}
        }
    }

    fn may_crash(&self, setting: &Setting, name: usize) -> bool {
        if setting.crash == Crash::Never {
            return false;
        }
        if let Some(guard) = setting.guard {
            let is_old = |node: &ModelNode<K>| matches!(node, ModelNode::Up { age, .. } if *age == guard.quarantine_period);
            let mut others = (0..NODES).filter(|other| *other != name);
            return !guard.keeps_an_old_node || others.any(|other| is_old(&self.nodes[other]));
        }
        // A crash of a node without keys has the same effect as a delay of its replies.
        let forgets = self.nodes[name].keys().iter().any(|key| *key != Key::Free);
        forgets && !self.nodes.iter().any(|node| matches!(node, ModelNode::Down { .. }))
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
                if is_connected && !matches!(self.nodes[node], ModelNode::Down { .. }) {
                    found.push(Action::Deliver(name, node));
                }
                if setting.loses {
                    found.push(Action::Lose(name, node));
                }
            }
            if channel.grant() == GrantState::InFlight && client.counts(setting, node) {
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
                self.nodes[node] = ModelNode::Down { left: setting.ttl };
            }
            Action::Expire(node, key) => self.nodes[node].keys_mut()[key] = Key::Free,
            Action::Crash(node) => {
                self.nodes[node] = ModelNode::empty(0);
                if setting.guard.is_some() {
                    self.clients[1].handle_restart(node);
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
            client.channels[node].set_grant(GrantState::InFlight);
        }
    }

    /// Ends branches of the search in which the restart guard can no longer change the outcome. The
    /// guard matters to the second holder, which is B. A represents any client that may have held
    /// the lock first: A makes no connections and knows the nodes' ages.
    ///
    /// A branch ends when either client is too late, or when B holds the lock and A does not. Once
    /// A holds the lock, its pending requests are dropped, because they can only block B.
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

    /// Connects a client to a node. Grants that were in transit over the old connection are lost.
    fn connect(&mut self, setting: &Setting, client: usize, node: usize) {
        let ModelNode::Up { age, .. } = self.nodes[node] else {
            unreachable!("with a guard, a node restarts at once")
        };
        let client = &mut self.clients[client];
        client.views = client.memory(setting).connect(node, age);
        if client.channels[node].grant() == GrantState::InFlight {
            client.channels[node].set_grant(GrantState::None);
        }
    }

    pub(crate) fn is_grant_in_flight(&self, client: usize, node: usize) -> bool {
        self.clients[client].channels[node].grant() == GrantState::InFlight
    }

    /// Returns the decision that `client` would make if it received the grant of `node` now.
    pub(crate) fn verdict(&self, setting: &Setting, client: usize, node: usize) -> Decided {
        verdict(setting, &self.clients[client], node)
    }
}

impl Client {
    fn memory(&self, setting: &Setting) -> Memory {
        Memory::new(setting.guard.expect("node views need a guard"), self.views)
    }

    pub(crate) fn counts(&self, setting: &Setting, node: usize) -> bool {
        setting.guard.is_none() || self.memory(setting).counts(node)
    }

    /// Handles a restart of `node`. Requests that were sent to the node are lost. Requests that
    /// wait for a connection are kept.
    fn handle_restart(&mut self, node: usize) {
        if self.views[node].contact() == Contact::Up {
            self.views[node].handle_restart();
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
        Decided::Failed | Decided::TooLate => end(client),
    }
}

/// Ends an attempt or a lease by sending releases to all nodes (I5).
fn end(client: &mut Client) {
    client.phase = ClientPhase::Idle;
    client.send_to_all(Verb::Release);
    for (channel, view) in client.channels.iter_mut().zip(&client.views) {
        // Requests that wait for a connection are discarded.
        if view.contact() != Contact::Up {
            channel.retain(|_| false);
        }
    }
}
