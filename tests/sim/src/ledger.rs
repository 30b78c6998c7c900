//! Who was given which token, and whether tokens follow the order of tenures.

use crate::clock::{Instant, US};
use crate::fencing::counter;
use crate::mode::Mode;
use crate::node::NodeHost;
use crate::process::Process;
use crate::shared::Core;
use crate::worker::name;
use quorlock_test::internals::{Kind, Stored};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// So much of a value tells it from all others.
const DIGITS: usize = 32;

/// So many numbers are drawn in a run at most, with much to spare: by as much a token may be above all wall clocks.
const DRAWS: u64 = 10_000;

/// Whose keys came to stand on a node, one after the other.
#[derive(Default)]
pub(crate) struct Tenures {
    by_resource: BTreeMap<usize, Vec<Vec<u8>>>,
}

/// A token that was handed out.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) process: usize,
    pub(crate) token: u64,
    /// The nodes that have the lease's key, and whose counter stands at the token: the place of the lease
    /// among those that had the key there.
    places: Vec<Option<usize>>,
    /// From when its key first came to stand anywhere until its holder had it.
    came: Instant,
    returned: Instant,
    /// On each node: when it last forgot counters, or this one ended.
    wiped: Vec<Option<Instant>>,
    /// The most that wall clocks have shown, in microseconds: no token is above it, but for some draws.
    shown: u64,
    /// What the holder's wall clock showed at least when it asked; 0 if that is not known.
    asked: u64,
}

/// All tokens of a run.
pub(crate) struct Ledger {
    mode: Mode,
    commits: BTreeMap<usize, Vec<Commit>>,
    /// How often a token was not higher than that of a lease which had been handed out before.
    pub(crate) disorders: u64,
}

impl Core {
    /// Takes down whose keys stand on a node.
    pub(crate) fn note_tenures(&mut self, node: usize) {
        if !self.notes_tenures {
            return;
        }
        let wall = self.node_wall(node);
        let mut came = Vec::new();
        for (key, Stored { kind, .. }) in self.nodes[node].server.keys(wall) {
            let (Some(resource), Kind::String(value)) = (lock_of(key), kind) else { continue };
            came.push((resource, tell_apart(&value).to_vec()));
        }
        for (resource, value) in came {
            self.came.entry(value.clone()).or_insert(self.now);
            // A key that is put back later was there before.
            let tenures = self.nodes[node].tenures.by_resource.entry(resource).or_default();
            if !tenures.contains(&value) {
                tenures.push(value);
            }
        }
    }

    /// What is known of a lease that is handed out now, with the `token`. It was asked for no earlier than `age` ago.
    pub(crate) fn commit(
        &self,
        process: usize,
        resource: usize,
        value: &str,
        (token, age): (u64, Option<Instant>),
    ) -> Commit {
        let value = tell_apart(value.as_bytes());
        let place = |node: usize| {
            let mut is_ours = false;
            let mut is_at_token = false;
            let counter = counter(&name(resource));
            for (key, Stored { kind, .. }) in self.nodes[node].server.keys(self.node_wall(node)) {
                let Kind::String(stored) = kind else { continue };
                is_ours |= key == name(resource).as_bytes() && stored.starts_with(value);
                is_at_token |= key == counter.as_bytes() && stored == token.to_string().as_bytes();
            }
            let tenures = self.nodes[node].tenures.by_resource.get(&resource)?;
            let place = tenures.iter().position(|tenure| tenure == value)?;
            (is_ours && is_at_token).then_some(place)
        };
        let places = (0..self.nodes.len()).map(place).collect();
        let came = self.came.get(value).copied().unwrap_or(self.now);
        let ended = |node: &NodeHost| node.counters.ended.get(&resource).copied();
        let wiped = self.nodes.iter().map(|node| node.wiped.max(ended(node))).collect();
        let wall = |process: &Process| process.wall.read(self.now);
        let shown = self.processes.iter().map(wall).max().unwrap_or_default() / US;
        let own = wall(&self.processes[process]);
        let asked = age.filter(|_| self.trusts_walls).map_or(0, |age| (own - age) / US);
        Commit { process, token, places, came, returned: self.now, wiped, shown, asked }
    }
}

impl Ledger {
    pub(crate) fn new(mode: Mode) -> Self {
        Self { mode, commits: BTreeMap::new(), disorders: 0 }
    }

    /// Takes down a token, and says what is wrong with it.
    pub(crate) fn commit(&mut self, resource: usize, commit: Commit) -> Option<String> {
        let before = self.commits.get(&resource).into_iter().flatten();
        let wrong: Vec<_> =
            before.filter_map(|earlier| compare(self.mode, earlier, &commit)).collect();
        self.disorders += wrong.len() as u64;
        self.commits.entry(resource).or_default().push(commit);
        wrong.into_iter().next().map(|how| format!("r{resource}: {how}"))
    }

    /// True if any counter was lost by then.
    pub(crate) fn has_forgotten(&self) -> bool {
        let mut wiped = self.commits.values().flatten().flat_map(|commit| &commit.wiped);
        wiped.any(Option::is_some)
    }
}

/// Two tokens, the second of which was handed out after the first.
fn compare(mode: Mode, one: &Commit, other: &Commit) -> Option<String> {
    let is_later = mode.is_exclusive() || one.returned <= other.came;
    let order = one.token.cmp(&other.token);
    let tell = |what: &str| {
        let (first, second) = ((one.process, one.token), (other.process, other.token));
        Some(format!(
            "p{} had token {}, and p{} has {}: {what}",
            first.0, first.1, second.0, second.1
        ))
    };
    if !mode.is_promised() {
        let is_wrong = order == Ordering::Equal || is_later && order != Ordering::Less;
        return if is_wrong { tell("it was only measured") } else { None };
    }
    let since = one.came.min(other.came);
    let has_kept = |node: &usize| other.wiped[*node].is_none_or(|at| at < since);
    let forgot = (0..other.wiped.len()).any(|node| !has_kept(&node));
    let both = |node: usize| Some((one.places[node]?, other.places[node]?));
    let kept = (0..other.wiped.len()).filter(has_kept);
    let kept: Vec<_> = kept.filter_map(|node| Some((node, both(node)?))).collect();
    if kept.is_empty() && forgot {
        // What is left is the wall clock.
        let is_told = other.asked > one.shown + DRAWS && order != Ordering::Less;
        return if is_told { tell("its wall clock was ahead of all before") } else { None };
    }
    if order == Ordering::Equal {
        return tell("they are the same");
    }
    if is_later && order != Ordering::Less {
        return tell("it came later");
    }
    // Also of leases at the same time: keys can be gone before their time.
    let wrong = kept.into_iter().find(|(_, (one, other))| one.cmp(other) != order);
    wrong.and_then(|(node, _)| tell(&format!("that is not the order on n{node}")))
}

/// What tells a value from all others.
pub(crate) fn tell_apart(value: &[u8]) -> &[u8] {
    &value[..value.len().min(DIGITS)]
}

/// The lock whose key it is.
pub(crate) fn lock_of(key: &[u8]) -> Option<usize> {
    std::str::from_utf8(key).ok()?.strip_prefix('r')?.parse().ok()
}
