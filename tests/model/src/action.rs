//! What can happen next, and what it does.

use crate::NODES;
use crate::decision::{self, Verdict};
use crate::line::{Grant, Verb};
use crate::setting::{Crash, Setting};
use crate::state::{Client, Extension, Node, Phase, State};

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
    /// The key on a node expires by the node's clock.
    Expire(usize),
    /// A node crashes, and has forgotten its key.
    Crash(usize),
    /// A node that crashed is back.
    Restart(usize),
}

impl<const C: usize> State<C> {
    /// All that can happen next.
    pub(crate) fn actions(&self, setting: &Setting, found: &mut Vec<Action>) {
        found.clear();
        found.push(Action::Tick);
        for client in 0..C {
            self.client_actions(setting, client, found);
        }
        let all_are_up = !self.nodes.iter().any(|node| matches!(node, Node::Away { .. }));
        let crashes = setting.crash != Crash::Never && all_are_up;
        for (name, node) in self.nodes.iter().enumerate() {
            match *node {
                Node::Held { left, .. } => {
                    if left <= setting.ahead || setting.jumps {
                        found.push(Action::Expire(name));
                    }
                    if crashes {
                        found.push(Action::Crash(name));
                    }
                }
                // By the node's clock, like expiry: no later than the last key it could have had.
                Node::Away { left } if left <= setting.ahead => found.push(Action::Restart(name)),
                // A node that crashes with nothing to forget is one that is slow to answer.
                Node::Free | Node::Away { .. } => {}
            }
        }
    }

    fn client_actions(&self, setting: &Setting, name: usize, found: &mut Vec<Action>) {
        let client = &self.clients[name];
        match client.phase {
            Phase::Idle if client.attempts < setting.attempts => found.push(Action::Begin(name)),
            Phase::Idle => {}
            Phase::Asking { .. } => found.push(Action::GiveUp(name)),
            Phase::Holding { left, extension } => {
                found.push(Action::Release(name));
                if setting.extends && extension == Extension::NotYet && left > 0 {
                    found.push(Action::Extend(name));
                }
            }
        }
        for node in 0..NODES {
            let line = client.lines[node];
            if line.requests().next().is_some() {
                if !matches!(self.nodes[node], Node::Away { .. }) {
                    found.push(Action::Take(name, node));
                }
                if setting.loses {
                    found.push(Action::Lose(name, node));
                }
            }
            if line.grant() == Grant::Coming {
                found.push(Action::Hear(name, node));
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
                client.phase = Phase::Asking { age: 0 };
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
                if let Phase::Holding { extension, .. } = &mut client.phase {
                    *extension = Extension::Asking(0);
                }
                client.send_to_all(Verb::Extend);
            }
            Action::Crash(node) if setting.crash == Crash::StaysAway => {
                self.nodes[node] = Node::Away { left: setting.ttl };
            }
            Action::Expire(node) | Action::Crash(node) | Action::Restart(node) => {
                self.nodes[node] = Node::Free;
            }
        }
        if setting.compares {
            self.forget(setting);
        }
        self
    }

    fn tick(&mut self, setting: &Setting) {
        for node in &mut self.nodes {
            if let Node::Held { left, .. } | Node::Away { left } = node {
                *left = left.saturating_sub(1);
            }
        }
        for client in &mut self.clients {
            match &mut client.phase {
                Phase::Idle => {}
                // No validity is longer than the ttl: beyond it, late is late.
                Phase::Asking { age } => *age = (*age + 1).min(setting.ttl),
                Phase::Holding { left, extension } => {
                    *left = left.saturating_sub(1);
                    if let Extension::Asking(age) = extension {
                        *age = (*age + 1).min(setting.ttl);
                    }
                }
            }
        }
    }

    fn take(&mut self, setting: &Setting, name: usize, node: usize) {
        let client = &mut self.clients[name];
        let request = client.lines[node].pop().expect("only what was sent arrives");
        let place = &mut self.nodes[node];
        let is_ours = match *place {
            Node::Held { owner, attempt, .. } => {
                usize::from(owner) == name && attempt == request.attempt
            }
            _ => false,
        };
        let is_granted = match request.verb {
            Verb::Release => {
                if is_ours || !setting.compares {
                    *place = Node::Free;
                }
                return;
            }
            Verb::Set => *place == Node::Free,
            Verb::Extend => is_ours,
        };
        if !is_granted {
            return;
        }
        *place = Node::Held {
            owner: u8::try_from(name).expect("few clients"),
            attempt: request.attempt,
            left: setting.ttl,
        };
        let awaited = match client.phase {
            Phase::Asking { .. } => Some(Verb::Set),
            Phase::Holding { extension: Extension::Asking(_), .. } => Some(Verb::Extend),
            _ => None,
        };
        if request.attempt == client.attempt() && awaited == Some(request.verb) {
            client.lines[node].set_grant(Grant::Coming);
        }
    }

    /// Whether a grant of `node` is on its way to `client`.
    pub(crate) fn is_coming(&self, client: usize, node: usize) -> bool {
        self.clients[client].lines[node].grant() == Grant::Coming
    }

    /// What `client` would decide if it heard `node` now.
    pub(crate) fn verdict(&self, setting: &Setting, client: usize, node: usize) -> Verdict {
        verdict(setting, &self.clients[client], node)
    }
}

fn verdict(setting: &Setting, client: &Client, node: usize) -> Verdict {
    let grants = client.heard().chain([node]);
    match client.phase {
        Phase::Asking { age } => decision::acquire(setting, grants, age),
        Phase::Holding { left, extension: Extension::Asking(age) } => {
            decision::extend(setting, grants, age, left)
        }
        _ => Verdict::Open,
    }
}

fn hear(setting: &Setting, client: &mut Client, node: usize) {
    match verdict(setting, client, node) {
        Verdict::Open => client.lines[node].set_grant(Grant::Heard),
        Verdict::Held(left) => {
            let extension = match client.phase {
                Phase::Holding { .. } => Extension::Over,
                _ => Extension::NotYet,
            };
            client.phase = Phase::Holding { left, extension };
            // Votes that are still to come are recorded, and change nothing (I2).
            client.lines.iter_mut().for_each(|line| line.set_grant(Grant::None));
        }
        Verdict::Over | Verdict::TooLate => end(client),
    }
}

/// Any end of an attempt or a lease is followed by releases to all nodes (I5).
fn end(client: &mut Client) {
    client.phase = Phase::Idle;
    client.send_to_all(Verb::Release);
}
