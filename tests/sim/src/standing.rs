//! How long the counters beside locks stand on nodes, and what is promised of that.

use crate::clock::{Instant, MS, US};
use crate::ledger::{lock_of, tell_apart};
use crate::rule::Rule;
use crate::shared::Core;
use quorlock_test::internals::{Kind, Stored};
use std::collections::BTreeMap;

/// What stands at the key of a lock and at that of its counter.
#[derive(Default)]
pub(crate) struct Sight {
    /// What tells its value from all others, and from when on it is gone, by the node's clock in microseconds.
    held: Option<(Vec<u8>, u64)>,
    /// The number, and from when on it is gone.
    counter: Option<(u64, u64)>,
}

/// The counters of a node.
#[derive(Default)]
pub(crate) struct Counters {
    /// From when on each is gone that was seen last, by the node's clock in microseconds.
    due: BTreeMap<usize, u64>,
    /// When each was found to have ended by itself.
    pub(crate) ended: BTreeMap<usize, Instant>,
}

/// A lease with a token whose holder has given it up while it was valid.
pub(crate) struct LetGo {
    /// From when on others may have the lock: later than it was let go of, if it cools down.
    pub(crate) at: Instant,
    pub(crate) token: u64,
    /// How many locks are its.
    pub(crate) locks: usize,
}

impl Core {
    /// What stands on a node before a command is run there. Counters whose time is over have ended by then.
    pub(crate) fn see_counters(&mut self, node: usize) -> BTreeMap<usize, Sight> {
        if !self.notes_tenures {
            return BTreeMap::new();
        }
        let (now, wall, seen) = (self.now, self.node_wall(node), self.sights(node));
        let counters = &mut self.nodes[node].counters;
        for (lock, due) in std::mem::take(&mut counters.due) {
            // The clock may have been put back since.
            let is_gone = seen.get(&lock).is_none_or(|sight| sight.counter.is_none());
            if is_gone || wall >= due {
                counters.ended.insert(lock, now);
            }
        }
        seen
    }

    /// Looks whether the counters stand as is promised, after something was run on a node that looked so `before`.
    pub(crate) fn check_counters(&mut self, node: usize, before: &BTreeMap<usize, Sight>) {
        if !self.notes_tenures {
            return;
        }
        let after = self.sights(node);
        let due = after.iter().filter_map(|(lock, sight)| Some((*lock, sight.counter?.1)));
        self.nodes[node].counters.due = due.collect();
        // The last acquires of a run ask for no tokens.
        if self.is_healed {
            return;
        }
        let nothing = Sight::default();
        for lock in before.keys().chain(after.keys()) {
            let was = before.get(lock).unwrap_or(&nothing);
            let is = after.get(lock).unwrap_or(&nothing);
            let value = was.held.as_ref().map(|(value, _)| value);
            let of_it = |sight: &&Sight| sight.held.as_ref().map(|(value, _)| value) == value;
            let together = before.values().filter(of_it).count();
            if let Some(how) = self.compare_sights(node, (was, together), is) {
                self.findings.push((Rule::Counters, format!("n{node} r{lock}: {how}")));
            }
        }
    }

    /// What is wrong with a counter, after a command that found it as it `was`, and so many locks of the same lease
    /// `together`.
    fn compare_sights(
        &self,
        node: usize,
        (was, together): (&Sight, usize),
        is: &Sight,
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
            let how = format!("its key was set or extended, and it ends in {} ms", left / MS);
            return Some(how);
        }
        let (value, _) = was.held.as_ref()?;
        let stands = is.held.as_ref().is_some_and(|(new, _)| new == value);
        let LetGo { at, token, locks } = self.let_go_of.get(value).filter(|_| !stands)?;
        // A node that has lost another lock of the same lease has not confirmed the token, and is none of those that
        // have to remember it.
        if together < *locks {
            return None;
        }
        let (came, host) = (*self.came.get(value)?, &self.nodes[node]);
        let step = host.last_step.map(|(at, _)| at);
        if host.wiped.max(step).is_some_and(|at| at >= came) {
            return None;
        }
        if number < *token {
            return Some(format!("it stands at {number}, and token {token} was released"));
        }
        // Clocks may go wrong by a hundredth: that of the client, which looks at one half, and the node's.
        let least = at + self.token_ttl / 2 - self.token_ttl / 50;
        let ends = self.now.saturating_add(left);
        (ends + 20 * MS < least).then(|| {
            let short = (least - ends) / MS;
            format!("it ends {short} ms before half of its time is over since the release")
        })
    }

    /// What stands at the keys of locks and counters.
    fn sights(&self, node: usize) -> BTreeMap<usize, Sight> {
        let mut seen: BTreeMap<usize, Sight> = BTreeMap::new();
        for (key, Stored { kind, gone_at_us, .. }) in
            self.nodes[node].server.keys(self.node_wall(node))
        {
            let until = gone_at_us.unwrap_or(u64::MAX);
            let end = key.iter().position(|byte| *byte == b'#');
            let Some(lock) = lock_of(&key[..end.unwrap_or(key.len())]) else { continue };
            let Kind::String(value) = kind else { continue };
            let sight = seen.entry(lock).or_default();
            if end.is_none() {
                sight.held = Some((tell_apart(&value).to_vec(), until));
            } else if let Ok(Ok(number)) = std::str::from_utf8(&value).map(str::parse) {
                sight.counter = Some((number, until));
            }
        }
        seen
    }

    /// A lease that is valid is let go of by its holder.
    pub(crate) fn note_let_go(&mut self, value: &str, token: u64, locks: usize) {
        let value = tell_apart(value.as_bytes()).to_vec();
        self.let_go_of.insert(value, LetGo { at: self.now, token, locks });
    }

    /// It was only handed over: whoever takes it draws a number anew.
    pub(crate) fn note_handed_over(&mut self, value: &str) {
        self.let_go_of.remove(tell_apart(value.as_bytes()));
    }

    /// It cools down for so many milliseconds.
    pub(crate) fn note_cooling(&mut self, value: &str, ms: u64) {
        if let Some(let_go) = self.let_go_of.get_mut(tell_apart(value.as_bytes())) {
            let_go.at += ms * MS;
        }
    }
}
