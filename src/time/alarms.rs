//! The scheduled alarms, ordered by time. This module uses neither a thread nor a clock.

use super::on_alarm::OnAlarm;
use crate::protocol::Time;
use slab::Slab;
use std::collections::BTreeSet;
use std::sync::Weak;

#[derive(Default)]
pub(super) struct Alarms {
    entries: Slab<Entry>,
    /// The time and key of each scheduled alarm. A firing alarm is not included.
    order: BTreeSet<(Time, usize)>,
    /// The key of the alarm whose callback is running.
    firing: Option<usize>,
}

struct Entry {
    callback: Weak<dyn OnAlarm>,
    /// When the alarm is due. While its callback runs, the earliest time requested by [`Alarms::reschedule_earlier`].
    at: Option<Time>,
}

impl Alarms {
    /// Adds an alarm and returns its key. The key is not reused until the alarm is cancelled.
    pub(super) fn set(&mut self, at: Time, callback: Weak<dyn OnAlarm>) -> usize {
        let key = self.entries.insert(Entry { callback, at: Some(at) });
        self.order.insert((at, key));
        key
    }

    pub(super) fn cancel(&mut self, key: usize) {
        self.firing.take_if(|firing| *firing == key);
        if let Some(at) = self.entries.try_remove(key).and_then(|entry| entry.at) {
            self.order.remove(&(at, key));
        }
    }

    /// Reschedules the alarm `key` to `at`, unless it is due earlier or no longer scheduled. Returns true if the timer
    /// thread must wake up earlier.
    pub(super) fn reschedule_earlier(&mut self, key: usize, at: Time) -> bool {
        let Some(entry) = self.entries.get_mut(key) else { return false };
        if self.firing == Some(key) {
            entry.at = Some(entry.at.map_or(at, |again| again.min(at)));
            return false;
        }
        let Some(due) = entry.at.filter(|due| at < *due) else { return false };
        entry.at = Some(at);
        self.order.remove(&(due, key));
        self.order.insert((at, key))
    }

    /// Returns the callback of the next alarm if it is due at `now`, and `None` otherwise. The caller must run the
    /// callback and then call [`finish_firing`](Self::finish_firing).
    pub(super) fn take_due(&mut self, now: Time) -> Option<Weak<dyn OnAlarm>> {
        self.next().filter(|at| *at <= now)?;
        let (_, key) = self.order.pop_first()?;
        let entry = self.entries.get_mut(key)?;
        (self.firing, entry.at) = (Some(key), None);
        Some(entry.callback.clone())
    }

    /// Reschedules the alarm whose callback has returned `answer`, unless the alarm was cancelled. An earlier time that
    /// was requested while the callback ran replaces `answer`. If `answer` is `None`, the alarm is not rescheduled.
    pub(super) fn finish_firing(&mut self, answer: Option<Time>) {
        let Some(key) = self.firing.take() else { return };
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.at = answer.map(|at| entry.at.map_or(at, |again| again.min(at)));
        self.order.extend(entry.at.map(|at| (at, key)));
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Returns true if no alarm is due at `now` and no callback is running.
    #[cfg(feature = "test-util")]
    pub(super) fn is_idle(&self, now: Time) -> bool {
        self.firing.is_none() && self.next().is_none_or(|at| at > now)
    }
}

#[cfg(test)]
#[path = "alarms_tests.rs"]
mod tests;
