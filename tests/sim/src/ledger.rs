//! The fencing tokens of a run, and checks of their order.

use crate::clock::{Instant, US};
use crate::fencing::counter;
use crate::jobs;
use crate::mode::Mode;
use crate::node::NodeHost;
use crate::permits;
use crate::process::Process;
use crate::reader_tokens::{READERS, is_key_of_readers};
use crate::readers;
use crate::shared::Core;
use crate::worker::name;
use quorlock_test::internals::{Kind, Stored};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The number of digits in the unique part of a lock's value.
pub(crate) const DIGITS: usize = 32;

/// The maximum amount by which a token can exceed all wall clocks, in microseconds. The amount is
/// larger than the number of tokens drawn in a run.
const DRAWS: u64 = 10_000;

/// The values that a node has held for each lock, in order.
#[derive(Default)]
pub(crate) struct Tenures {
    by_resource: BTreeMap<usize, Vec<Vec<u8>>>,
}

/// The token of a lease, and the state of the nodes when the lease was handed out.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) process: usize,
    pub(crate) token: u64,
    /// For each node, the position of the lease's value among all values that the node has held.
    /// `None` if the node lacks the lease's key, or if its counter does not equal the token.
    places: Vec<Option<usize>>,
    /// The nodes whose counter is not below the token.
    pub(crate) confirmed: Vec<usize>,
    /// The time at which the lease's value first appeared on a node.
    first_seen: Instant,
    pub(crate) returned: Instant,
    /// For each node, the time at which the node last lost its counters or this counter expired.
    /// `None` if neither has happened.
    wiped: Vec<Option<Instant>>,
    /// The latest reading of all wall clocks, in microseconds. A token exceeds this reading by at
    /// most [`DRAWS`].
    shown: u64,
    /// A lower limit of the holder's wall clock at the start of the acquire, in microseconds. 0 if
    /// unknown.
    asked: u64,
}

pub(crate) struct Ledger {
    mode: Mode,
    commits: BTreeMap<usize, Vec<Commit>>,
    /// The number of tokens that were not higher than the token of an earlier lease.
    pub(crate) disorders: u64,
}

impl Core {
    /// Records which values `node` holds at the keys of locks.
    pub(crate) fn record_tenures(&mut self, node: usize) {
        if !self.records_tenures {
            return;
        }
        let wall = self.node_wall(node);
        let (mut present, mut readers) = (Vec::new(), Vec::new());
        for (key, Stored { kind, .. }) in self.nodes[node].server.keys(wall) {
            match kind {
                Kind::String(value) if value != READERS => {
                    if let Some(resource) = lock_of(key) {
                        present.push((resource, unique_part(&value).to_vec()));
                    } else if is_key_of_readers(key) {
                        readers.push(value);
                    }
                }
                Kind::SortedSet(values) => readers.extend(values.into_keys()),
                _ => {}
            }
        }
        for value in readers {
            self.first_seen.entry(unique_part(&value).to_vec()).or_insert(self.now);
        }
        for (resource, value) in present {
            self.first_seen.entry(value.clone()).or_insert(self.now);
            // A restored key keeps its position.
            let tenures = self.nodes[node].tenures.by_resource.entry(resource).or_default();
            if !tenures.contains(&value) {
                tenures.push(value);
            }
        }
    }

    /// Creates the [`Commit`] of a lease with `token` that is being handed out. The acquire started
    /// at most `age` ago.
    pub(crate) fn commit(
        &self,
        process: usize,
        resource: usize,
        value: &str,
        (token, age): (u64, Option<Instant>),
    ) -> Commit {
        let value = unique_part(value.as_bytes());
        let place = |node: usize| {
            let mut has_value = false;
            let mut is_at_token = false;
            let counter = counter(&name(resource), "token");
            for (key, Stored { kind, .. }) in self.nodes[node].server.keys(self.node_wall(node)) {
                let Kind::String(stored) = kind else { continue };
                has_value |= key == name(resource).as_bytes() && stored.starts_with(value);
                is_at_token |= key == counter.as_bytes() && stored == token.to_string().as_bytes();
            }
            let tenures = self.nodes[node].tenures.by_resource.get(&resource)?;
            let place = tenures.iter().position(|tenure| tenure == value)?;
            (has_value && is_at_token).then_some(place)
        };
        let places = (0..self.nodes.len()).map(place).collect();
        let confirmed = |node: &usize| self.fencing_counter(*node, resource) >= token;
        let confirmed = (0..self.nodes.len()).filter(confirmed).collect();
        let first_seen = self.first_seen_at(value);
        let wiped = self.counters_wiped(resource);
        let wall = |process: &Process| process.wall.read(self.now);
        let shown = self.processes.iter().map(wall).max().unwrap_or_default() / US;
        let own = wall(&self.processes[process]);
        let asked = age.filter(|_| self.trusts_wall_clocks).map_or(0, |age| (own - age) / US);
        let returned = self.now;
        Commit { process, token, places, confirmed, first_seen, returned, wiped, shown, asked }
    }

    /// Returns the time at which the unique part of a value first appeared on a node, or the current time if it has
    /// not appeared.
    pub(crate) fn first_seen_at(&self, value: &[u8]) -> Instant {
        self.first_seen.get(value).copied().unwrap_or(self.now)
    }

    /// Returns for each node when it last lost its counters or this counter expired.
    pub(crate) fn counters_wiped(&self, resource: usize) -> Vec<Option<Instant>> {
        let ended = |node: &NodeHost| node.counters.ended.get(&resource).copied();
        self.nodes.iter().map(|node| node.wiped.max(ended(node))).collect()
    }
}

impl Ledger {
    pub(crate) fn new(mode: Mode) -> Self {
        Self { mode, commits: BTreeMap::new(), disorders: 0 }
    }

    /// Records a token, and compares it with all earlier tokens of the resource. Returns a
    /// description of the first violation, or `None`.
    pub(crate) fn commit(&mut self, resource: usize, commit: Commit) -> Option<String> {
        let compared = |earlier| compare(self.mode, earlier, &commit);
        let wrong: Vec<_> = self.commits(resource).filter_map(compared).collect();
        self.disorders += wrong.len() as u64;
        self.commits.entry(resource).or_default().push(commit);
        wrong.into_iter().next().map(|how| format!("r{resource}: {how}"))
    }

    /// Returns the earlier tokens of the resource.
    pub(crate) fn commits(&self, resource: usize) -> impl Iterator<Item = &Commit> {
        self.commits.get(&resource).into_iter().flatten()
    }

    /// Returns true if any counter has been lost.
    pub(crate) fn has_forgotten(&self) -> bool {
        let mut wiped = self.commits.values().flatten().flat_map(|commit| &commit.wiped);
        wiped.any(Option::is_some)
    }
}

/// Compares the tokens of two leases. `other` was handed out after `one`. Returns a description of
/// the violation, or `None`.
fn compare(mode: Mode, one: &Commit, other: &Commit) -> Option<String> {
    let is_later = mode.is_exclusive() || one.returned <= other.first_seen;
    let order = one.token.cmp(&other.token);
    let report = |what: &str| {
        let (first, second) = ((one.process, one.token), (other.process, other.token));
        Some(format!(
            "p{} had token {}, and p{} has {}: {what}",
            first.0, first.1, second.0, second.1
        ))
    };
    if !mode.is_promised() {
        let is_wrong = order == Ordering::Equal || is_later && order != Ordering::Less;
        return if is_wrong { report("out of order, which this mode only counts") } else { None };
    }
    let since = one.first_seen.min(other.first_seen);
    let has_kept = |node: &usize| other.wiped[*node].is_none_or(|at| at < since);
    let forgot = (0..other.wiped.len()).any(|node| !has_kept(&node));
    let both = |node: usize| Some((one.places[node]?, other.places[node]?));
    let kept = (0..other.wiped.len()).filter(has_kept);
    let kept: Vec<_> = kept.filter_map(|node| Some((node, both(node)?))).collect();
    if kept.is_empty() && forgot {
        // Without a shared counter, only the wall clock determines the order.
        let is_ahead = other.asked > one.shown + DRAWS && order != Ordering::Less;
        return if is_ahead {
            report("its wall clock was ahead of all earlier ones")
        } else {
            None
        };
    }
    if order == Ordering::Equal {
        return report("the tokens are equal");
    }
    if is_later && order != Ordering::Less {
        return report("the second lease is later");
    }
    // This check includes concurrent leases, because keys can be lost before their expiry.
    let wrong = kept.into_iter().find(|(_, (one, other))| one.cmp(other) != order);
    wrong.and_then(|(node, _)| report(&format!("n{node} has held them in another order")))
}

pub(crate) fn unique_part(value: &[u8]) -> &[u8] {
    &value[..value.len().min(DIGITS)]
}

/// Returns the number of the lock with the key `key`, such as 3 for `r3`. Returns `None` if the key
/// is not the key of a numbered lock.
pub(crate) fn lock_of(key: &[u8]) -> Option<usize> {
    let key = std::str::from_utf8(key).ok()?;
    jobs::lock_of(key)
        .or_else(|| readers::lock_of(key))
        .or_else(|| permits::lock_of(key))
        .or_else(|| key.strip_prefix('r')?.parse().ok())
}
