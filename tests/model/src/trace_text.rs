//! Converts traces of the model to text.

use crate::action::Action;
use crate::channel::Verb;
use crate::decision::Decided;
use crate::node::{Key, ModelNode};
use crate::search::Move;
use crate::setting::{Crash, Setting};
use crate::state::{ClientPhase, ExtensionPhase, State};
use std::cmp::Ordering;

pub(crate) fn describe<const C: usize, const K: usize>(
    setting: &Setting,
    start: State<C, K>,
    trace: &[Move<C, K>],
) -> Vec<String> {
    let mut before = start;
    let mut lines = Vec::new();
    for (step, (action, after)) in trace.iter().enumerate() {
        lines.push(format!("{:>3}. {}", step + 1, describe_step(setting, &before, *action, after)));
        before = *after;
    }
    lines
}

fn name(client: usize) -> char {
    ['A', 'B', 'C'][client]
}

fn ticks(count: u8) -> String {
    format!("{count} tick{}", if count == 1 { "" } else { "s" })
}

fn describe_step<const C: usize, const K: usize>(
    setting: &Setting,
    before: &State<C, K>,
    action: Action,
    after: &State<C, K>,
) -> String {
    match action {
        Action::Tick => tick(setting, before, after),
        Action::Begin(client) => {
            let (client, attempt) = (name(client), after.clients[client].attempts);
            format!("{client} reads T1 and sends the SETs of its attempt {attempt} to all nodes")
        }
        Action::Deliver(client, node) => deliver(before, client, node, after),
        Action::Lose(client, node) => {
            let request = request(before, client, node);
            format!("{request} is lost on its way to node {}", node + 1)
        }
        Action::Receive(client, node) => receive(setting, before, client, node),
        Action::GiveUp(client) => {
            format!("{} gives up its attempt and sends releases to all nodes", name(client))
        }
        Action::Extend(client) => format!("{} sends extensions to all nodes", name(client)),
        Action::Release(client) => {
            let is_valid = before.believes(setting, client);
            let lease = if is_valid { "its lease" } else { "its expired lease" };
            format!("{} ends {lease} and sends releases to all nodes", name(client))
        }
        Action::Expire(node, key) => expire(setting, before, node, key),
        Action::Crash(node) if setting.crash == Crash::StaysAway => {
            format!("node {} crashes, loses its keys and stays down", node + 1)
        }
        Action::Crash(node) => {
            format!("node {} crashes and restarts at once without keys", node + 1)
        }
        Action::Restart(node) => format!("node {} restarts without keys", node + 1),
        Action::Connect(client, node) => connect(setting, before, client, node, after),
        Action::AssumeUnreachable(client, node) => {
            format!("{} assumes that node {} is unreachable", name(client), node + 1)
        }
    }
}

fn tick<const C: usize, const K: usize>(
    setting: &Setting,
    before: &State<C, K>,
    after: &State<C, K>,
) -> String {
    let ends =
        |client: &usize| before.believes(setting, *client) && !after.believes(setting, *client);
    let ended: Vec<_> = (0..C).filter(ends).map(|client| name(client).to_string()).collect();
    match ended.join(" and ") {
        none if none.is_empty() => "a tick passes".to_owned(),
        clients => format!("a tick passes; the validity of {clients} ends"),
    }
}

fn request<const C: usize, const K: usize>(
    before: &State<C, K>,
    client: usize,
    node: usize,
) -> String {
    let next = before.clients[client].channels[node].requests().next();
    let next = next.expect("a pending request");
    let verb = match next.verb {
        Verb::Set => "SET",
        Verb::Extend => "extension",
        Verb::Release => "release",
    };
    format!("the {verb} of {}'s attempt {}", name(client), next.attempt + 1)
}

fn deliver<const C: usize, const K: usize>(
    before: &State<C, K>,
    client: usize,
    node: usize,
    after: &State<C, K>,
) -> String {
    let text = format!("node {} executes {}", node + 1, request(before, client, node));
    let next = before.clients[client].channels[node].requests().next();
    let is_release = next.is_some_and(|it| it.verb == Verb::Release);
    let held = |state: &State<C, K>| {
        let keys = state.nodes[node].keys();
        keys.iter().filter(|key| **key != Key::Free).count()
    };
    let changed = match held(after).cmp(&held(before)) {
        Ordering::Less => "deleted",
        Ordering::Greater => "granted",
        Ordering::Equal if is_release => "nothing to delete",
        Ordering::Equal if before.nodes[node] == after.nodes[node] => "refused",
        Ordering::Equal => "full ttl set again",
    };
    format!("{text}: {changed}")
}

fn connect<const C: usize, const K: usize>(
    setting: &Setting,
    before: &State<C, K>,
    client: usize,
    node: usize,
    after: &State<C, K>,
) -> String {
    let ModelNode::Up { age, .. } = before.nodes[node] else {
        unreachable!("with a guard, a node restarts at once")
    };
    let (client_name, quarantine_period) = (name(client), setting.oldest());
    let age =
        if age < quarantine_period { format!("{} old", ticks(age)) } else { "old".to_owned() };
    let counts = after.clients[client].counts(setting, node);
    let effect = if counts { "counts" } else { "does not count yet" };
    format!("{client_name} connects to node {}, which is {age}: it {effect}", node + 1)
}

fn receive<const C: usize, const K: usize>(
    setting: &Setting,
    before: &State<C, K>,
    client: usize,
    node: usize,
) -> String {
    let client_name = name(client);
    let text = format!("{client_name} receives the grant of node {}", node + 1);
    let extends = matches!(
        before.clients[client].phase,
        ClientPhase::Holding { extension: ExtensionPhase::Asking(_), .. }
    );
    match before.verdict(setting, client, node) {
        Decided::Open => text,
        Decided::Held(left) if extends => {
            format!("{text}; {client_name} EXTENDS, for {}", ticks(left))
        }
        Decided::Held(left) => format!("{text}; {client_name} HOLDS THE LOCK, for {}", ticks(left)),
        Decided::TooLate => format!("{text}; too late: {client_name} sends releases to all nodes"),
        Decided::Failed => {
            format!("{text}; no quorum possible: {client_name} sends releases to all nodes")
        }
    }
}

fn expire<const C: usize, const K: usize>(
    setting: &Setting,
    before: &State<C, K>,
    node: usize,
    key: usize,
) -> String {
    let Key::Held { owner, left, .. } = before.nodes[node].keys()[key] else {
        unreachable!("an expired key had a value")
    };
    let (owner, node) = (name(usize::from(owner)), node + 1);
    let key = if K == 1 { "key".to_owned() } else { format!("key {}", ['x', 'y', 'z'][key]) };
    match left {
        0 => format!("the {key} of {owner} expires on node {node}"),
        _ if left <= setting.ahead => {
            format!("node {node}'s clock is ahead: {owner}'s {key} expires {} early", ticks(left))
        }
        _ => format!("node {node}'s clock jumps: {owner}'s {key} expires {} early", ticks(left)),
    }
}
