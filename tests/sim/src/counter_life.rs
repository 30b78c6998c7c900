//! Checks how long the fencing counters of locks live.

use crate::clock::{Instant, MS, US};
use crate::fencing::COUNTER;
use crate::ledger::{lock_of, unique_part};
use crate::reader_tokens::READERS;
use crate::rule::Rule;
use crate::shared::Core;
use quorlock_test::internals::{Kind, Stored};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(crate) struct LockSnapshot {
    /// The unique part of the lock's value, and the key's expiry in microseconds of the node's
    /// clock. `None` if the key does not exist.
    held: Option<(Vec<u8>, u64)>,
    /// The value of the fencing counter, and its expiry in microseconds of the node's clock. `None`
    /// if the counter does not exist.
    counter: Option<(u64, u64)>,
}

/// The expiry times of a node's fencing counters, by lock.
#[derive(Default)]
pub(crate) struct Counters {
    /// For each counter, the expiry at the last read, in microseconds of the node's clock.
    due: BTreeMap<usize, u64>,
    /// For each counter that has expired, the time at which the simulation noticed the expiry.
    pub(crate) ended: BTreeMap<usize, Instant>,
}

/// A lease with a fencing token that was still valid when its holder released or dropped it.
pub(crate) struct ReleasedLease {
    /// The time at which the lock becomes available. This is later than the release if the lock has
    /// a cool-down.
    pub(crate) at: Instant,
    pub(crate) token: u64,
    pub(crate) locks: BTreeSet<usize>,
}

impl Core {
    /// Reads the locks and counters of `node` before the node executes a command. Records the
    /// counters that have expired since the last read. Returns an empty map in runs without fencing
    /// tokens.
    pub(crate) fn read_counters(&mut self, node: usize) -> BTreeMap<usize, LockSnapshot> {
        if !self.records_tenures {
            return BTreeMap::new();
        }
        let (now, wall, seen) = (self.now, self.node_wall(node), self.snapshots(node));
        let counters = &mut self.nodes[node].counters;
        for (lock, due) in std::mem::take(&mut counters.due) {
            // The node's clock may have been set back since the last read.
            let is_gone = seen.get(&lock).is_none_or(|snapshot| snapshot.counter.is_none());
            if is_gone || wall >= due {
                counters.ended.insert(lock, now);
            }
        }
        seen
    }

    /// Checks that a command has left the counters of `node` with correct values and lifetimes.
    /// `before` is the result of [`read_counters`](Self::read_counters) before the command.
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
            if was.held != is.held {
                self.counts.add(Rule::Counters, 1);
            }
            if let Some(how) = self.compare_snapshots((node, *lock), (was, together), is) {
                self.findings.push((Rule::Counters, format!("n{node} r{lock}: {how}")));
            }
        }
    }

    /// Checks the effect of a command on one lock and its counter. `was` and `is` are the states
    /// before and after the command. `together` is the number of locks that the same lease holds on
    /// the node. Returns a description of the violation, or `None`.
    fn compare_snapshots(
        &self,
        (node, lock): (usize, usize),
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
        // An acquire of any one of several locks may have set another lock on this node.
        if !locks.contains(&lock) {
            return None;
        }
        // A node that has lost another lock of the same lease has not confirmed the token, so the
        // node need not keep the counter.
        if together < locks.len() {
            return None;
        }
        let (first_seen, host) = (*self.first_seen.get(value)?, &self.nodes[node]);
        let step = host.last_step.map(|(at, _)| at);
        if host.wiped.max(step).is_some_and(|at| at >= first_seen) {
            return None;
        }
        if number < *token {
            return Some(format!("the counter is {number}, below the released token {token}"));
        }
        // A release leaves the counter unchanged while less than half of the counter's ttl has
        // passed by the client's clock. The clocks of the client and the node may each deviate by
        // 1 %.
        let least = at + self.token_ttl / 2 - self.token_ttl / 50;
        let ends = self.now.saturating_add(left);
        (ends + 20 * MS < least).then(|| {
            let short = (least - ends) / MS;
            format!(
                "the counter expires {short} ms before half of its ttl has passed since the release"
            )
        })
    }

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
            let Some(end) = end else {
                // Readers do not change the counter.
                let value = Some(value).filter(|value| value != READERS);
                snapshot.held = value.map(|value| (unique_part(&value).to_vec(), until));
                continue;
            };
            if !key[end..].starts_with(COUNTER) {
                continue;
            }
            if let Ok(Ok(number)) = std::str::from_utf8(&value).map(str::parse) {
                snapshot.counter = Some((number, until));
            }
        }
        seen
    }

    pub(crate) fn record_release(&mut self, value: &str, token: u64, locks: BTreeSet<usize>) {
        let value = unique_part(value.as_bytes()).to_vec();
        self.released_leases.insert(value, ReleasedLease { at: self.now, token, locks });
    }

    /// Removes the record of a released lease whose lock was actually handed over. The adoption of
    /// the lock draws a new token.
    pub(crate) fn record_handed_over(&mut self, value: &str) {
        self.released_leases.remove(unique_part(value.as_bytes()));
    }

    /// Postpones the time at which the lock becomes available by a cool-down of `ms` milliseconds.
    pub(crate) fn record_cool_down(&mut self, value: &str, ms: u64) {
        if let Some(released_at) = self.released_leases.get_mut(unique_part(value.as_bytes())) {
            released_at.at += ms * MS;
        }
    }
}
