//! The scheduled alarms, ordered by time. This module uses neither a thread nor a clock.

use super::ring::Ring;
use crate::protocol::Time;
use slab::Slab;
use std::collections::BTreeSet;
use std::sync::Weak;

#[derive(Default)]
pub(super) struct Alarms {
    entries: Slab<Entry>,
    /// The time and key of each scheduled alarm. A ringing alarm is not included.
    order: BTreeSet<(Time, usize)>,
    /// The key of the alarm whose callback is running.
    ringing: Option<usize>,
}

struct Entry {
    bell: Weak<dyn Ring>,
    /// When the alarm is due. While its callback runs, the earliest time requested by [`Alarms::hasten`].
    at: Option<Time>,
}

impl Alarms {
    /// Adds an alarm and returns its key. The key is not reused until the alarm is cancelled.
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

    /// Reschedules the alarm to `at`, unless it is due earlier or no longer scheduled. Returns true if the timer thread
    /// must wake up earlier.
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

    /// Returns the callback of the next alarm that is due at `now`. The alarm counts as ringing until
    /// [`put_back`](Self::put_back).
    pub(super) fn take_due(&mut self, now: Time) -> Option<Weak<dyn Ring>> {
        self.next().filter(|at| *at <= now)?;
        let (_, key) = self.order.pop_first()?;
        let entry = self.entries.get_mut(key)?;
        (self.ringing, entry.at) = (Some(key), None);
        Some(entry.bell.clone())
    }

    /// Reschedules the ringing alarm to `answer`, or to an earlier time requested while it was ringing. Without an
    /// answer, the alarm is not rescheduled. A cancelled alarm is ignored.
    pub(super) fn put_back(&mut self, answer: Option<Time>) {
        let Some(key) = self.ringing.take() else { return };
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.at = answer.map(|at| entry.at.map_or(at, |again| again.min(at)));
        self.order.extend(entry.at.map(|at| (at, key)));
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Returns true if no alarm is due at `now` and none is ringing.
    #[cfg(feature = "test-util")]
    pub(super) fn is_idle(&self, now: Time) -> bool {
        self.ringing.is_none() && self.next().is_none_or(|at| at > now)
    }
}

#[cfg(test)]
#[path = "alarms_tests.rs"]
mod tests;
