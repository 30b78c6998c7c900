//! The alarms that are set, in the order of their times. Without a thread and a clock.

use super::ring::Ring;
use crate::protocol::Time;
use slab::Slab;
use std::collections::BTreeSet;
use std::sync::Weak;

/// The alarms, by key and by time.
#[derive(Default)]
pub(super) struct Alarms {
    entries: Slab<Entry>,
    /// Time and key of each alarm that is due at a time and is not ringing.
    order: BTreeSet<(Time, usize)>,
    /// The key of the alarm that is ringing.
    ringing: Option<usize>,
}

struct Entry {
    bell: Weak<dyn Ring>,
    /// When it is due. While it is ringing, the latest time of its next call.
    at: Option<Time>,
}

impl Alarms {
    /// Sets an alarm. Its key is unique until it is cancelled.
    pub(super) fn set(&mut self, at: Time, bell: Weak<dyn Ring>) -> usize {
        let key = self.entries.insert(Entry { bell, at: Some(at) });
        self.order.insert((at, key));
        key
    }

    pub(super) fn cancel(&mut self, key: usize) {
        self.ringing.take_if(|ringing| *ringing == key);
        if let Some(at) = self.entries.try_remove(key).and_then(|entry| entry.at) {
            self.order.remove(&(at, key));
        }
    }

    /// Makes the alarm due at `at`, unless it is due earlier. Returns true if the thread must wake up earlier.
    pub(super) fn hasten(&mut self, key: usize, at: Time) -> bool {
        let Some(entry) = self.entries.get_mut(key) else { return false };
        if self.ringing == Some(key) {
            entry.at = Some(entry.at.map_or(at, |again| again.min(at)));
            return false;
        }
        let Some(due) = entry.at.filter(|due| at < *due) else { return false };
        entry.at = Some(at);
        self.order.remove(&(due, key));
        self.order.insert((at, key))
    }

    /// The next alarm that is due at `now`. It rings until [`put_back`](Self::put_back).
    pub(super) fn take_due(&mut self, now: Time) -> Option<Weak<dyn Ring>> {
        self.next().filter(|at| *at <= now)?;
        let (_, key) = self.order.pop_first()?;
        let entry = self.entries.get_mut(key)?;
        (self.ringing, entry.at) = (Some(key), None);
        Some(entry.bell.clone())
    }

    /// The alarm has rung, and is due again at `answer`, unless it was cancelled. Without an answer it stays silent.
    pub(super) fn put_back(&mut self, answer: Option<Time>) {
        let Some(key) = self.ringing.take() else { return };
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.at = answer.map(|at| entry.at.map_or(at, |again| again.min(at)));
        self.order.extend(entry.at.map(|at| (at, key)));
    }

    /// When the next alarm is due.
    pub(super) fn next(&self) -> Option<Time> {
        self.order.first().map(|(at, _)| *at)
    }

    /// True if no alarm is due at `now`, and none is ringing.
    #[cfg(feature = "test-util")]
    pub(super) fn is_idle(&self, now: Time) -> bool {
        self.ringing.is_none() && self.next().is_none_or(|at| at > now)
    }
}

#[cfg(test)]
#[path = "alarms_tests.rs"]
mod tests;
