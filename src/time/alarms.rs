//! The alarms that are set, and which of them is due: no thread and no clock.
//!
//! An alarm takes 40 bytes, and at most twice that where the tables have just grown.

use super::ring::Ring;
use crate::protocol::Time;
use slab::Slab;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Weak;

/// So many places that nobody has any more are not worth a sweep.
const FEW: usize = 32;

/// The alarms, by key and by time.
#[derive(Default)]
pub(super) struct Alarms {
    set: Slab<Set>,
    /// When to look at which. An alarm that was cancelled or is due at another time leaves its old place behind.
    order: BinaryHeap<Reverse<(Time, usize)>>,
    /// One at a time: it is in no place, and says itself when it rings again.
    ringing: Option<Ringing>,
}

struct Set {
    bell: Weak<dyn Ring>,
    /// When it rings, if ever; when it was due, while it is ringing.
    at: Option<Time>,
}

struct Ringing {
    key: usize,
    /// It rings again then at the latest.
    again: Option<Time>,
}

impl Alarms {
    /// Sets an alarm; the key is its own until it is cancelled.
    pub(super) fn set(&mut self, at: Time, bell: Weak<dyn Ring>) -> usize {
        let key = self.set.insert(Set { bell, at: Some(at) });
        self.order.push(Reverse((at, key)));
        key
    }

    pub(super) fn cancel(&mut self, key: usize) {
        self.set.try_remove(key);
        self.ringing.take_if(|ringing| ringing.key == key);
        self.sweep();
    }

    /// Rings at `at` at the latest. True if the next look at the alarms must come sooner.
    pub(super) fn hasten(&mut self, key: usize, at: Time) -> bool {
        if let Some(ringing) = self.ringing.as_mut().filter(|ringing| ringing.key == key) {
            ringing.again = Some(ringing.again.map_or(at, |known| known.min(at)));
            return false;
        }
        let sooner = self.set.get_mut(key).filter(|set| set.at.is_some_and(|due| at < due));
        let Some(set) = sooner else { return false };
        set.at = Some(at);
        self.order.push(Reverse((at, key)));
        self.sweep();
        true
    }

    /// The next alarm that is due at `now`: it rings until [`put_back`](Self::put_back).
    pub(super) fn take_due(&mut self, now: Time) -> Option<Weak<dyn Ring>> {
        self.next().filter(|at| *at <= now)?;
        let Reverse((_, key)) = self.order.pop()?;
        self.ringing = Some(Ringing { key, again: None });
        self.set.get(key).map(|set| set.bell.clone())
    }

    /// Takes when the alarm that has rung rings again, if it was not cancelled meanwhile. Without an answer it is silent
    /// from then on.
    pub(super) fn put_back(&mut self, answer: Option<Time>) {
        let Some(Ringing { key, again }) = self.ringing.take() else { return };
        let Some(set) = self.set.get_mut(key) else { return };
        set.at = answer.map(|at| again.map_or(at, |again| again.min(at)));
        self.order.extend(set.at.map(|at| Reverse((at, key))));
    }

    /// When the next one is due.
    pub(super) fn next(&mut self) -> Option<Time> {
        while let Some(&Reverse((at, key))) = self.order.peek() {
            if self.is_due_at(key, at) {
                return Some(at);
            }
            self.order.pop();
        }
        None
    }

    /// True if no alarm is due at `now`, and none is ringing.
    #[cfg(feature = "test-util")]
    pub(super) fn is_idle(&mut self, now: Time) -> bool {
        self.ringing.is_none() && self.next().is_none_or(|at| at > now)
    }

    fn is_due_at(&self, key: usize, at: Time) -> bool {
        let is_ringing = self.ringing.as_ref().is_some_and(|ringing| ringing.key == key);
        !is_ringing && self.set.get(key).is_some_and(|set| set.at == Some(at))
    }

    /// Takes out the places that nobody has any more, once they are most of all.
    fn sweep(&mut self) {
        if self.order.len() > FEW + 2 * self.set.len() {
            let mut order = std::mem::take(&mut self.order);
            order.retain(|&Reverse((at, key))| self.is_due_at(key, at));
            self.order = order;
        }
    }
}

#[cfg(test)]
#[path = "alarms_tests.rs"]
mod tests;
