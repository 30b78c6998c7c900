//! A trace in words.

use crate::action::Action;
use crate::decision::Decided;
use crate::line::Verb;
use crate::node::{Key, ModelNode};
use crate::search::Move;
use crate::setting::{Crash, Setting};
use crate::state::{ClientPhase, ExtensionPhase, State};
use std::cmp::Ordering;

/// The steps from `start` on, one a line, numbered.
pub(crate) fn tell<const C: usize, const K: usize>(
    setting: &Setting,
    start: State<C, K>,
    trace: &[Move<C, K>],
) -> Vec<String> {
    let mut before = start;
    let mut lines = Vec::new();
    for (step, (action, after)) in trace.iter().enumerate() {
        lines.push(format!("{:>3}. {}", step + 1, step_in_words(setting, &before, *action, after)));
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

fn step_in_words<const C: usize, const K: usize>(
    setting: &Setting,
    before: &State<C, K>,
    action: Action,
    after: &State<C, K>,
) -> String {
    match action {
        Action::Tick => tick(setting, before, after),
        Action::Begin(client) => {
            let (who, attempt) = (name(client), after.clients[client].attempts);
            format!("{who} reads T1 and sends the SETs of its attempt {attempt} to all nodes")
        }
        Action::Take(client, node) => take(before, client, node, after),
        Action::Lose(client, node) => {
            let request = request(before, client, node);
            format!("{request} is lost on its way to node {}", node + 1)
        }
        Action::Hear(client, node) => hear(setting, before, client, node),
        Action::GiveUp(client) => {
            format!("{} gives its attempt up, and sends releases to all nodes", name(client))
        }
        Action::Extend(client) => format!("{} asks all nodes to extend", name(client)),
        Action::Release(client) => {
            let is_valid = before.believes(setting, client);
            let what = if is_valid { "ends its lease" } else { "drops its expired lease" };
            format!("{} {what}, and sends releases to all nodes", name(client))
        }
        Action::Expire(node, key) => expire(setting, before, node, key),
        Action::Crash(node) if setting.crash == Crash::StaysAway => {
            format!("node {} crashes, forgets its key and stays away", node + 1)
        }
        Action::Crash(node) => format!("node {} crashes and is back at once, empty", node + 1),
        Action::Restart(node) => format!("node {} is back, empty", node + 1),
        Action::Meet(client, node) => meet(setting, before, client, node, after),
        Action::Miss(client, node) => {
            format!("{} takes node {} for one that it cannot reach", name(client), node + 1)
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
        who => format!("a tick passes; the validity of {who} has ended"),
    }
}

fn request<const C: usize, const K: usize>(
    before: &State<C, K>,
    client: usize,
    node: usize,
) -> String {
    let next = before.clients[client].lines[node].requests().next();
    let next = next.expect("only what was sent is under way");
    let verb = match next.verb {
        Verb::Set => "SET",
        Verb::Extend => "extension",
        Verb::Release => "release",
    };
    format!("the {verb} of {}'s attempt {}", name(client), next.attempt + 1)
}

fn take<const C: usize, const K: usize>(
    before: &State<C, K>,
    client: usize,
    node: usize,
    after: &State<C, K>,
) -> String {
    let text = format!("node {} takes {}", node + 1, request(before, client, node));
    let next = before.clients[client].lines[node].requests().next();
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
        Ordering::Equal => "its ttl starts anew",
    };
    format!("{text}: {changed}")
}

fn meet<const C: usize, const K: usize>(
    setting: &Setting,
    before: &State<C, K>,
    client: usize,
    node: usize,
    after: &State<C, K>,
) -> String {
    let ModelNode::Up { age, .. } = before.nodes[node] else { unreachable!("it is back at once") };
    let (who, term) = (name(client), setting.oldest());
    let age = if age < term { format!("{} old", ticks(age)) } else { "old".to_owned() };
    let counts = after.clients[client].counts(setting, node);
    let what = if counts { "counts" } else { "does not count yet" };
    format!("{who} connects to node {}, which is {age}: it {what}", node + 1)
}

fn hear<const C: usize, const K: usize>(
    setting: &Setting,
    before: &State<C, K>,
    client: usize,
    node: usize,
) -> String {
    let who = name(client);
    let text = format!("{who} hears the grant of node {}", node + 1);
    let extends = matches!(
        before.clients[client].phase,
        ClientPhase::Holding { extension: ExtensionPhase::Asking(_), .. }
    );
    match before.verdict(setting, client, node) {
        Decided::Open => text,
        Decided::Held(left) if extends => format!("{text}; {who} HOLDS ON, for {}", ticks(left)),
        Decided::Held(left) => format!("{text}; {who} HOLDS THE LOCK, for {}", ticks(left)),
        Decided::TooLate => format!("{text}; too late to count: {who} sends releases to all nodes"),
        Decided::Over => format!("{text}; no quorum is left: {who} sends releases to all nodes"),
    }
}

fn expire<const C: usize, const K: usize>(
    setting: &Setting,
    before: &State<C, K>,
    node: usize,
    key: usize,
) -> String {
    let Key::Held { owner, left, .. } = before.nodes[node].keys()[key] else {
        unreachable!("only keys expire")
    };
    let (who, node) = (name(usize::from(owner)), node + 1);
    let what = if K == 1 { "key".to_owned() } else { format!("key {}", ['x', 'y', 'z'][key]) };
    match left {
        0 => format!("the {what} of {who} expires on node {node}"),
        _ if left <= setting.ahead => {
            format!("node {node}'s clock is ahead: {who}'s {what} expires {} early", ticks(left))
        }
        _ => format!("node {node}'s clock jumps: {who}'s {what} expires {} early", ticks(left)),
    }
}
