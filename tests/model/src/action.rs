//! What can happen next, and what it does.

use crate::NODES;
use crate::decision::{self, Decided};
use crate::line::{GrantState, Line, Verb};
use crate::memory::{Contact, Memory, Sight};
use crate::node::{Key, ModelNode};
use crate::setting::{Crash, Setting};
use crate::state::{Client, ClientPhase, ExtensionPhase, State};

/// One step: of time, of a client (by its number), of a node, or of the network between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A tick passes on every clock.
    Tick,
    /// A client reads T1 and asks all nodes. That each request may arrive at any time, or never,
    /// stands for asking one by one in any order.
    Begin(usize),
    /// A node takes the next request of a client.
    Take(usize, usize),
    /// The next request of a client to a node is lost.
    Lose(usize, usize),
    /// A client hears a node's grant, and decides if it can.
    Hear(usize, usize),
    /// A client ends its attempt undecided: a timeout, or its future was dropped.
    GiveUp(usize),
    /// A holder asks all nodes for more time.
    Extend(usize),
    /// A holder ends its lease, valid or not.
    Release(usize),
    /// A key on a node expires by the node's clock: keys that were set together do not always go together.
    Expire(usize, usize),
    /// A node crashes, and has forgotten its keys.
    Crash(usize),
    /// A node that crashed is back.
    Restart(usize),
    /// A client has a connection to a node that it had none to.
    Meet(usize, usize),
    /// A client goes by that it cannot reach a node.
    Miss(usize, usize),
}

impl<const C: usize, const K: usize> State<C, K> {
    /// All that can happen next.
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
            // By the node's clock, like expiry: no later than the last key it could have had.
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
            return !guard.spares || others.any(|other| is_old(&self.nodes[other]));
        }
        // A node that crashes with nothing to forget is one that is slow to answer.
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
            let line = client.lines[node];
            if line.requests().next().is_some() {
                let is_connected = client.sights[node].contact() == Contact::Up;
                if is_connected && !matches!(self.nodes[node], ModelNode::Away { .. }) {
                    found.push(Action::Take(name, node));
                }
                if setting.loses {
                    found.push(Action::Lose(name, node));
                }
            }
            if line.grant() == GrantState::Coming && client.counts(setting, node) {
                found.push(Action::Hear(name, node));
            }
            let Some(guard) = setting.guard.filter(|_| name > 0) else { continue };
            match client.sights[node].contact() {
                Contact::Up => {}
                Contact::None if guard.hastes => {
                    found.extend([Action::Meet(name, node), Action::Miss(name, node)]);
                }
                _ => found.push(Action::Meet(name, node)),
            }
        }
    }

    /// The state after `action`.
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
            Action::Take(client, node) => self.take(setting, client, node),
            Action::Lose(client, node) => {
                self.clients[client].lines[node].pop();
            }
            Action::Hear(client, node) => hear(setting, &mut self.clients[client], node),
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
            Action::Meet(client, node) => self.meet(setting, client, node),
            Action::Miss(client, node) => {
                let client = &mut self.clients[client];
                client.sights = client.memory(setting).give_up(node);
            }
        }
        if setting.guard.is_some() {
            self.leave_out_ends(setting);
        }
        if setting.compares {
            self.forget(setting);
        }
        self
    }

    fn tick(&mut self, setting: &Setting) {
        self.nodes.iter_mut().for_each(|node| node.tick(setting.oldest()));
        for client in &mut self.clients {
            client.sights.iter_mut().for_each(Sight::tick);
            match &mut client.phase {
                ClientPhase::Idle => {}
                // No validity is longer than the ttl: beyond it, late is late.
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

    fn take(&mut self, setting: &Setting, name: usize, node: usize) {
        let client = &mut self.clients[name];
        let request = client.lines[node].pop().expect("only what was sent arrives");
        if !self.nodes[node].serve(setting, name, request) {
            return;
        }
        if let Some(guard) = setting.guard
            && let ModelNode::Up { age, .. } = self.nodes[node]
            && name == 0
        {
            client.sights[node] = Sight::of_age(guard, age);
        }
        let awaited = match client.phase {
            ClientPhase::Asking { .. } => Some(Verb::Set),
            ClientPhase::Holding { extension: ExtensionPhase::Asking(_), .. } => Some(Verb::Extend),
            _ => None,
        };
        if request.attempt == client.attempt() && awaited == Some(request.verb) {
            client.lines[node].set_grant(GrantState::Coming);
        }
    }

    /// A guard is about whoever is the second to hold. That is B; A stands for any client that may have
    /// been the first: it does not meet nodes, and knows how old they are. So nothing is of interest any
    /// more once either has come too late, or B holds what A does not; nor is what is still under way of A
    /// when A holds, for that can only keep B out.
    fn leave_out_ends(&mut self, setting: &Setting) {
        let is_late = |client: &Client| match client.phase {
            ClientPhase::Idle => client.attempts == setting.attempts,
            ClientPhase::Asking { age } => age == setting.ttl,
            ClientPhase::Holding { left, .. } => left == 0,
        };
        let has_b = matches!(self.clients[1].phase, ClientPhase::Holding { .. });
        let has_a = self.believes(setting, 0);
        if self.clients.iter().any(is_late) || has_b && !has_a {
            *self = Self::start(setting);
            self.clients.iter_mut().for_each(|client| client.attempts = setting.attempts);
        } else if has_a {
            self.clients[0].lines = [Line::default(); NODES];
        }
    }

    /// What was under way on the old connection arrives no more.
    fn meet(&mut self, setting: &Setting, client: usize, node: usize) {
        let ModelNode::Up { age, .. } = self.nodes[node] else {
            unreachable!("it is back at once")
        };
        let client = &mut self.clients[client];
        client.sights = client.memory(setting).meet(node, age);
        if client.lines[node].grant() == GrantState::Coming {
            client.lines[node].set_grant(GrantState::None);
        }
    }

    /// Whether a grant of `node` is on its way to `client`.
    pub(crate) fn is_coming(&self, client: usize, node: usize) -> bool {
        self.clients[client].lines[node].grant() == GrantState::Coming
    }

    /// What `client` would decide if it heard `node` now.
    pub(crate) fn verdict(&self, setting: &Setting, client: usize, node: usize) -> Decided {
        verdict(setting, &self.clients[client], node)
    }
}

impl Client {
    fn memory(&self, setting: &Setting) -> Memory {
        Memory::new(setting.guard.expect("only with a guard"), self.sights)
    }

    /// Whether what `node` grants counts now.
    pub(crate) fn counts(&self, setting: &Setting, node: usize) -> bool {
        setting.guard.is_none() || self.memory(setting).counts(node)
    }

    /// `node` has restarted. What was written to it is lost; what waits for a connection is not.
    fn lose(&mut self, node: usize) {
        if self.sights[node].contact() == Contact::Up {
            self.sights[node].lose();
            self.lines[node].retain(|_| false);
        }
    }
}

fn verdict(setting: &Setting, client: &Client, node: usize) -> Decided {
    let grants = client.heard().chain([node]);
    match client.phase {
        ClientPhase::Asking { age } => decision::acquire(setting, grants, age),
        ClientPhase::Holding { left, extension: ExtensionPhase::Asking(age) } => {
            decision::extend(setting, grants, age, left)
        }
        _ => Decided::Open,
    }
}

fn hear(setting: &Setting, client: &mut Client, node: usize) {
    match verdict(setting, client, node) {
        Decided::Open => client.lines[node].set_grant(GrantState::Heard),
        Decided::Held(left) => {
            let extension = match client.phase {
                ClientPhase::Holding { .. } => ExtensionPhase::Over,
                _ => ExtensionPhase::NotYet,
            };
            client.phase = ClientPhase::Holding { left, extension };
            // Votes that are still to come are recorded, and change nothing (I2).
            client.lines.iter_mut().for_each(|line| line.set_grant(GrantState::None));
        }
        Decided::Over | Decided::TooLate => end(client),
    }
}

/// Any end of an attempt or a lease is followed by releases to all nodes (I5).
fn end(client: &mut Client) {
    client.phase = ClientPhase::Idle;
    client.send_to_all(Verb::Release);
    for (line, sight) in client.lines.iter_mut().zip(&client.sights) {
        // What waited for a connection is not written any more.
        if sight.contact() != Contact::Up {
            line.retain(|_| false);
        }
    }
}
