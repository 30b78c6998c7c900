//! Checks of the life of the counters beside locks.

use crate::clock::{Instant, MS, US};
use crate::ledger::{lock_of, unique_part};
use crate::rule::Rule;
use crate::shared::Core;
use quorlock_test::internals::{Kind, Stored};
use std::collections::BTreeMap;

/// The value of a lock and of its counter on a node.
#[derive(Default)]
pub(crate) struct LockSnapshot {
    /// The unique part of the lock's value, and its expiry by the node's clock in microseconds.
    held: Option<(Vec<u8>, u64)>,
    /// The counter's number, and its expiry.
    counter: Option<(u64, u64)>,
}

/// Counters of a node.
#[derive(Default)]
pub(crate) struct Counters {
    /// Expiry of each counter when it was last read, by the node's clock in microseconds.
    due: BTreeMap<usize, u64>,
    /// Time at which the expiry of each counter was noticed.
    pub(crate) ended: BTreeMap<usize, Instant>,
}

/// A lease with a token that its holder released or dropped while it was valid.
pub(crate) struct ReleasedLease {
    /// Time at which the lock becomes available, which is later than the release if it has a
    /// cool-down.
    pub(crate) at: Instant,
    pub(crate) token: u64,
    /// Number of locks of the lease.
    pub(crate) locks: usize,
}

impl Core {
    /// Reads the locks and counters of a node before a command is executed, and records expired
    /// counters.
    pub(crate) fn read_counters(&mut self, node: usize) -> BTreeMap<usize, LockSnapshot> {
        if !self.records_tenures {
            return BTreeMap::new();
        }
        let (now, wall, seen) = (self.now, self.node_wall(node), self.snapshots(node));
        let counters = &mut self.nodes[node].counters;
        for (lock, due) in std::mem::take(&mut counters.due) {
            // The node's clock may have been set back since.
            let is_gone = seen.get(&lock).is_none_or(|snapshot| snapshot.counter.is_none());
            if is_gone || wall >= due {
                counters.ended.insert(lock, now);
            }
        }
        seen
    }

    /// Checks the counters of a node after a command that found them as in `before`.
    pub(crate) fn check_counters(&mut self, node: usize, before: &BTreeMap<usize, LockSnapshot>) {
        if !self.records_tenures {
            return;
        }
        let after = self.snapshots(node);
        let due = after.iter().filter_map(|(lock, snapshot)| Some((*lock, snapshot.counter?.1)));
        self.nodes[node].counters.due = due.collect();
        // The last acquires of a run are not fenced.
        if self.is_healed {
            return;
        }
        let empty = LockSnapshot::default();
        for lock in before.keys().chain(after.keys()) {
            let was = before.get(lock).unwrap_or(&empty);
            let is = after.get(lock).unwrap_or(&empty);
            let value = was.held.as_ref().map(|(value, _)| value);
            let of_it =
                |snapshot: &&LockSnapshot| snapshot.held.as_ref().map(|(value, _)| value) == value;
            let together = before.values().filter(of_it).count();
            if let Some(how) = self.compare_snapshots(node, (was, together), is) {
                self.findings.push((Rule::Counters, format!("n{node} r{lock}: {how}")));
            }
        }
    }

    /// Describes a violation by a command that found the lock and counter as in `was`. `together`
    /// is the number of locks of the same lease on the node.
    fn compare_snapshots(
        &self,
        node: usize,
        (was, together): (&LockSnapshot, usize),
        is: &LockSnapshot,
    ) -> Option<String> {
        let (number, until) = is.counter.unwrap_or_default();
        let wall = self.node_wall(node);
        let left = until.saturating_sub(wall).saturating_mul(US);
        let is_set = match (&was.held, &is.held) {
            (None, Some(_)) => true,
            (Some((old, ended)), Some((new, ends))) => old == new && ends > ended,
            _ => false,
        };
        if is_set && left < self.token_ttl {
            let how = format!(
                "the lock's key was set or extended, but the counter expires in {} ms",
                left / MS
            );
            return Some(how);
        }
        let (value, _) = was.held.as_ref()?;
        let has_value = is.held.as_ref().is_some_and(|(new, _)| new == value);
        let ReleasedLease { at, token, locks } =
            self.released_leases.get(value).filter(|_| !has_value)?;
        // A node that has lost another lock of the same lease has not confirmed the token, so it
        // need not keep the counter.
        if together < *locks {
            return None;
        }
        let (came, host) = (*self.came.get(value)?, &self.nodes[node]);
        let step = host.last_step.map(|(at, _)| at);
        if host.wiped.max(step).is_some_and(|at| at >= came) {
            return None;
        }
        if number < *token {
            return Some(format!("the counter is {number}, below the released token {token}"));
        }
        // Clocks may deviate by 1 %: the client's clock, which measures one half of the time, and
        // the node's.
        let least = at + self.token_ttl / 2 - self.token_ttl / 50;
        let ends = self.now.saturating_add(left);
        (ends + 20 * MS < least).then(|| {
            let short = (least - ends) / MS;
            format!(
                "the counter expires {short} ms before half of its ttl has passed since the release"
            )
        })
    }

    /// Reads the keys of locks and counters on a node.
    fn snapshots(&self, node: usize) -> BTreeMap<usize, LockSnapshot> {
        let mut seen: BTreeMap<usize, LockSnapshot> = BTreeMap::new();
        for (key, Stored { kind, expires_at_us, .. }) in
            self.nodes[node].server.keys(self.node_wall(node))
        {
            let until = expires_at_us.unwrap_or(u64::MAX);
            let end = key.iter().position(|byte| *byte == b'#');
            let Some(lock) = lock_of(&key[..end.unwrap_or(key.len())]) else { continue };
            let Kind::String(value) = kind else { continue };
            let snapshot = seen.entry(lock).or_default();
            if end.is_none() {
                snapshot.held = Some((unique_part(&value).to_vec(), until));
            } else if let Ok(Ok(number)) = std::str::from_utf8(&value).map(str::parse) {
                snapshot.counter = Some((number, until));
            }
        }
        seen
    }

    /// Records the release of a valid lease.
    pub(crate) fn record_release(&mut self, value: &str, token: u64, locks: usize) {
        let value = unique_part(value.as_bytes()).to_vec();
        self.released_leases.insert(value, ReleasedLease { at: self.now, token, locks });
    }

    /// Removes a lease that was only handed over: its adoption draws a new token.
    pub(crate) fn record_handed_over(&mut self, value: &str) {
        self.released_leases.remove(unique_part(value.as_bytes()));
    }

    /// Records a cool-down of `ms` milliseconds.
    pub(crate) fn record_cool_down(&mut self, value: &str, ms: u64) {
        if let Some(released_at) = self.released_leases.get_mut(unique_part(value.as_bytes())) {
            released_at.at += ms * MS;
        }
    }
}
