//! Who was given which token, and whether tokens follow the order of tenures.

use crate::clock::Instant;
use crate::fencing::counter;
use crate::mode::Mode;
use crate::shared::Core;
use crate::worker::name;
use quorlock::test_util::server_model::{Kind, Stored};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// So much of a value tells it from all others.
const DIGITS: usize = 32;

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
    /// On each node: when it last forgot counters.
    wiped: Vec<Option<Instant>>,
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
            let (Some(resource), Kind::String(value)) = (resource(key), kind) else { continue };
            came.push((resource, value[..value.len().min(DIGITS)].to_vec()));
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

    /// What is known of a lease that is handed out now.
    pub(crate) fn commit(
        &self,
        process: usize,
        resource: usize,
        value: &str,
        token: u64,
    ) -> Commit {
        let value = &value.as_bytes()[..DIGITS.min(value.len())];
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
        let wiped = self.nodes.iter().map(|node| node.wiped).collect();
        Commit { process, token, places, came, returned: self.now, wiped }
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
        return None;
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

/// The lock whose key it is.
fn resource(key: &[u8]) -> Option<usize> {
    std::str::from_utf8(key).ok()?.strip_prefix('r')?.parse().ok()
}
