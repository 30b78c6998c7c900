//! A trace in words.

use crate::action::Action;
use crate::decision::Verdict;
use crate::line::Verb;
use crate::search::Step;
use crate::setting::{Crash, Setting};
use crate::state::{Extension, Node, Phase, State};

/// The steps from `start` on, one a line, numbered.
pub(crate) fn tell<const C: usize>(
    setting: &Setting,
    start: State<C>,
    trace: &[Step<C>],
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

fn step_in_words<const C: usize>(
    setting: &Setting,
    before: &State<C>,
    action: Action,
    after: &State<C>,
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
        Action::Expire(node) => expire(setting, before, node),
        Action::Crash(node) if setting.crash == Crash::StaysAway => {
            format!("node {} crashes, forgets its key and stays away", node + 1)
        }
        Action::Crash(node) => format!("node {} crashes and is back at once, empty", node + 1),
        Action::Restart(node) => format!("node {} is back, empty", node + 1),
    }
}

fn tick<const C: usize>(setting: &Setting, before: &State<C>, after: &State<C>) -> String {
    let ends =
        |client: &usize| before.believes(setting, *client) && !after.believes(setting, *client);
    let ended: Vec<_> = (0..C).filter(ends).map(|client| name(client).to_string()).collect();
    match ended.join(" and ") {
        none if none.is_empty() => "a tick passes".to_owned(),
        who => format!("a tick passes; the validity of {who} has ended"),
    }
}

fn request<const C: usize>(before: &State<C>, client: usize, node: usize) -> String {
    let next = before.clients[client].lines[node].requests().next();
    let next = next.expect("only what was sent is under way");
    let verb = match next.verb {
        Verb::Set => "SET",
        Verb::Extend => "extension",
        Verb::Release => "release",
    };
    format!("the {verb} of {}'s attempt {}", name(client), next.attempt + 1)
}

fn take<const C: usize>(before: &State<C>, client: usize, node: usize, after: &State<C>) -> String {
    let text = format!("node {} takes {}", node + 1, request(before, client, node));
    let changed = match (before.nodes[node], after.nodes[node]) {
        (Node::Held { owner, .. }, Node::Free) => {
            format!("the key of {} is deleted", name(usize::from(owner)))
        }
        (Node::Free, Node::Held { .. }) => "granted".to_owned(),
        (old, new) if old == new => {
            let next = before.clients[client].lines[node].requests().next();
            let is_release = next.is_some_and(|it| it.verb == Verb::Release);
            if is_release { "nothing to delete" } else { "refused" }.to_owned()
        }
        _ => "its ttl starts anew".to_owned(),
    };
    format!("{text}: {changed}")
}

fn hear<const C: usize>(
    setting: &Setting,
    before: &State<C>,
    client: usize,
    node: usize,
) -> String {
    let who = name(client);
    let text = format!("{who} hears the grant of node {}", node + 1);
    let extends = matches!(
        before.clients[client].phase,
        Phase::Holding { extension: Extension::Asking(_), .. }
    );
    match before.verdict(setting, client, node) {
        Verdict::Open => text,
        Verdict::Held(left) if extends => format!("{text}; {who} HOLDS ON, for {}", ticks(left)),
        Verdict::Held(left) => format!("{text}; {who} HOLDS THE LOCK, for {}", ticks(left)),
        Verdict::TooLate => format!("{text}; too late to count: {who} sends releases to all nodes"),
        Verdict::Over => format!("{text}; no quorum is left: {who} sends releases to all nodes"),
    }
}

fn expire<const C: usize>(setting: &Setting, before: &State<C>, node: usize) -> String {
    let Node::Held { owner, left, .. } = before.nodes[node] else {
        unreachable!("only keys expire")
    };
    let (who, node) = (name(usize::from(owner)), node + 1);
    match left {
        0 => format!("the key of {who} expires on node {node}"),
        _ if left <= setting.ahead => {
            format!("node {node}'s clock is ahead: {who}'s key expires {} early", ticks(left))
        }
        _ => format!("node {node}'s clock jumps: {who}'s key expires {} early", ticks(left)),
    }
}
