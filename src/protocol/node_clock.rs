//! One node's clock against ours: by how much it has stepped ahead, and from when on its grants count.
//!
//! A node keeps keys by its own wall clock. If that steps ahead by d, every key that was granted before
//! is dropped up to d early, until the longest ttl has passed. So a grant does not prove by itself that
//! the former holder's time is over:
//! 1. A is granted the lock for 10 s. 2. The node's clock is put ahead by 5 s. 3. After 5 s the key is
//!    gone, and B is granted the lock. 4. A relies on it for 5 s more.
//!
//! With each grant the node tells its time. Say that it shows T when it grants. Whoever was granted the
//! lock when its clock was o ahead of ours, for a ttl that ends at T at the latest, relies on it until
//! T - o at the latest on our clock, less the allowance for drift. So the grant counts from then on,
//! with the least o of all times at which such a key can have been granted. When the clock is set back,
//! what it showed before that stands for T: keys that were dropped do not come back.
//!
//! Report each [`Reading`] by [`handle_reading`](NodeClock::handle_reading), in the order in which they were
//! read. It says from when on a grant counts that came with it, and by how much the clock has got ahead if
//! that is new. Between readings, [`lag`](NodeClock::lag) is how much later a grant counts now, and
//! [`fast`](NodeClock::fast) says whether the clock runs fast, so that nothing of it counts.

use super::validity::{Drift, Time};
use std::collections::VecDeque;
use std::time::Duration;

/// How fast a clock may wander off by itself, at most: what is more was a step. Crystals keep within
/// 100 parts per million, and there are two.
const WANDER: u32 = 200;

/// What Redis cuts off when it notes when a key ends.
const PRECISION: Duration = Duration::from_millis(1);

/// A clock is looked at anew for whether it runs fast after this time.
const INTERVAL: Duration = Duration::from_secs(1);

/// It runs fast if it gains too much in so many intervals in a row; else it has stepped.
const SEVERAL: u32 = 3;

/// So many earlier offsets are remembered (I12); where there are more, neighbours are remembered together.
const MAX_PAST: usize = 64;

/// A node's clock as it was read: it showed this time after `sent` and before `received` on ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) sent: Time,
    /// In microseconds since 1970; cut off after the last of them.
    pub(crate) shown_us: u64,
    pub(crate) received: Time,
}

/// How far a node's clock is ahead of ours, in nanoseconds: something from `lowest` to `highest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offset {
    pub(crate) lowest: i64,
    pub(crate) highest: i64,
}

/// What a reading says of the grants that came with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// They count from then on: no holder whose key was dropped early relies on it any more.
    pub(crate) counts_from: Time,
    /// By how much the clock has stepped ahead at most, if this reading has brought that to light. It may
    /// as well be ours that stood still: then it is our own leases that end sooner than they believe.
    pub(crate) ahead: Option<Duration>,
}

/// Why a node's grants do not count at all: its clock runs fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fast {
    /// What it had gained when that was seen.
    pub(crate) ahead: Duration,
    /// When it counts again, if it runs well.
    pub(crate) until: Time,
}

/// What a client knows of one node's clock.
#[derive(Debug)]
pub(crate) struct NodeClock {
    rates: Rates,
    /// For how long after a step a key can stand that was granted before.
    term: Duration,
    now: Option<Known>,
    /// How far ahead it was before; each further than the one before, the others do not matter.
    past: VecDeque<Past>,
    /// Grants count from then on at the earliest, for the keys that it had dropped before it was set back.
    dropped: Time,
    pace: Option<Pace>,
    fast: Option<Fast>,
}

/// Rates in parts per million, and what is granted on top.
#[derive(Clone, Copy, Debug)]
struct Rates {
    factor: u32,
    /// What clocks do by themselves.
    wander: u32,
    /// What is left of the allowance then: of the time for which a key was to stand, its holder gives up
    /// so much.
    spare: u32,
    constant: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    offset: Offset,
    /// When the first reading of this offset was received, and the last one sent.
    since: Time,
    at: Time,
}

#[derive(Clone, Copy, Debug)]
struct Past {
    lowest: i64,
    /// It was so until then at the latest.
    until: Time,
    /// The `until` of the earliest that this stands for.
    begun: Time,
}

/// The offset that the next interval is counted from.
#[derive(Clone, Copy, Debug)]
struct Pace {
    offset: Offset,
    at: Time,
    /// How many intervals in a row it has run fast, and what it has gained in them.
    run: u32,
    gained: i64,
}

impl Reading {
    /// What it says by itself.
    pub(crate) fn offset(self) -> Offset {
        let shown = nanos(self.shown_us.saturating_mul(1_000));
        Offset {
            lowest: shown.saturating_sub(nanos(self.received.as_nanos())),
            highest: self.shown().saturating_sub(nanos(self.sent.as_nanos())),
        }
    }

    /// What it showed, at the latest.
    fn shown(self) -> i64 {
        nanos(self.shown_us.saturating_mul(1_000)).saturating_add(1_000)
    }
}

impl Offset {
    fn widened(self, by: Duration) -> Self {
        let by = length(by);
        let (lowest, highest) = (self.lowest.saturating_sub(by), self.highest.saturating_add(by));
        Self { lowest, highest }
    }

    /// What both say together, if both can be right.
    pub(crate) fn narrowed(self, other: Self) -> Option<Self> {
        let (lowest, highest) = (self.lowest.max(other.lowest), self.highest.min(other.highest));
        (lowest <= highest).then_some(Self { lowest, highest })
    }

    /// How much more this is than `before`.
    pub(crate) fn beyond(self, before: Self) -> Self {
        Self {
            lowest: self.lowest.saturating_sub(before.highest),
            highest: self.highest.saturating_sub(before.lowest),
        }
    }
}

impl NodeClock {
    /// A clock that was not read yet. A key that was granted before a step can stand for `term` after.
    pub(crate) fn new(drift: Drift, term: Duration) -> Self {
        let factor = drift.parts_per_million();
        let wander = WANDER.min(factor / 4);
        let constant = drift.constant().saturating_sub(PRECISION);
        let rates = Rates { factor, wander, spare: factor - 3 * wander, constant };
        let (now, past, dropped, pace, fast) = Default::default();
        Self { rates, term, now, past, dropped, pace, fast }
    }

    /// Takes a reading, and says what the grants are worth that came before it over the same connection.
    pub(crate) fn handle_reading(&mut self, reading: Reading) -> Told {
        let received = reading.received;
        let seen = reading.offset();
        while self.past.front().is_some_and(|past| past.until.after(self.term) <= received) {
            self.past.pop_front();
        }
        let Some(known) = self.now else {
            self.now = Some(Known { offset: seen, since: received, at: reading.sent });
            self.pace = Some(Pace { offset: seen, at: reading.sent, run: 0, gained: 0 });
            return Told { counts_from: received, ahead: None };
        };
        if received < known.since {
            // Another task was quicker: it tells of a time before the last step.
            return Told { counts_from: self.counts_from(reading), ahead: None };
        }
        let before = known.offset.widened(share(received.since(known.at), self.rates.wander));
        let ahead = if let Some(offset) = before.narrowed(seen) {
            self.now = Some(Known { offset, at: known.at.max(reading.sent), ..known });
            None
        } else {
            if seen.highest < before.lowest {
                // The grants that came with this reading may have come before that, too.
                let shown = before.highest.saturating_add(nanos(received.as_nanos()));
                let relied_until = self.relied_until(shown, received);
                self.dropped = self.dropped.max(relied_until.min(received.after(self.term)));
            }
            self.note_past(before.lowest, received);
            self.now = Some(Known { offset: seen, since: received, at: reading.sent });
            let by = seen.beyond(before);
            let most = Duration::from_nanos(u64::try_from(by.highest).unwrap_or_default());
            (by.lowest > 0).then_some(most)
        };
        self.look_at_pace(reading);
        Told { counts_from: self.counts_from(reading), ahead }
    }

    /// It was at least `lowest` ahead until `until`.
    fn note_past(&mut self, lowest: i64, until: Time) {
        // A key that was granted later, with the clock not further ahead, is what matters.
        while self.past.back().is_some_and(|past| past.lowest >= lowest) {
            self.past.pop_back();
        }
        self.past.push_back(Past { lowest, until, begun: until });
        if self.past.len() > MAX_PAST {
            self.merge_past(until);
        }
    }

    /// Remembers two neighbours together, as if it had been as little ahead as in the earlier one until the
    /// later one ended. The older they are, the less that makes of a difference.
    fn merge_past(&mut self, now: Time) {
        let apart = |index: &usize| {
            let (begun, until) = (self.past[*index].begun, self.past[index + 1].until);
            until.since(begun).as_nanos() * 1_000 / (now.since(until).as_nanos() + 1)
        };
        if let Some(index) = (0..self.past.len() - 1).min_by_key(apart)
            && let Some(later) = self.past.remove(index + 1)
        {
            self.past[index].until = later.until;
        }
    }

    /// From when on a grant counts that came with `reading`.
    fn counts_from(&self, reading: Reading) -> Time {
        let relied_until = self.relied_until(reading.shown(), reading.received);
        reading.received.max(self.dropped).max(relied_until)
    }

    /// Until when, at the latest, anybody relies `now` on a key that ended before the clock showed this,
    /// and was granted when it was less far ahead.
    fn relied_until(&self, shown: i64, now: Time) -> Time {
        let recent = self.past.iter().filter(|past| now < past.until.after(self.term));
        let ends = recent.map(|past| {
            let over = u64::try_from(shown.saturating_sub(past.lowest)).unwrap_or_default();
            let over = Time::from_nanos(over);
            // It was to stand from then on at the latest, and its holder has given up a share of that.
            let spared = share(over.since(past.until), self.rates.spare);
            let spared = spared.saturating_add(self.rates.constant);
            Time::from_nanos(over.as_nanos().saturating_sub(nanos_of(spared)))
        });
        ends.max().unwrap_or_default()
    }

    /// Whether it has gained too much in several intervals in a row.
    fn look_at_pace(&mut self, reading: Reading) {
        let (Some(pace), Some(known)) = (self.pace, self.now) else { return };
        let went_by = reading.received.since(pace.at);
        if went_by < INTERVAL {
            return;
        }
        let gained = known.offset.lowest.saturating_sub(pace.offset.highest);
        let is_fast = gained > length(share(went_by, self.rates.factor));
        let (run, gained) =
            if is_fast { (pace.run + 1, pace.gained.saturating_add(gained)) } else { (0, 0) };
        self.pace = Some(Pace { offset: known.offset, at: reading.sent, run, gained });
        if run >= SEVERAL {
            let ahead = Duration::from_nanos(u64::try_from(gained).unwrap_or_default());
            self.fast = Some(Fast { ahead, until: reading.received.after(self.term) });
        }
    }

    /// How much later what it grants at `now` counts.
    pub(crate) fn lag(&self, now: Time) -> Duration {
        let Some(known) = self.now else { return Duration::ZERO };
        let shown = nanos(now.as_nanos()).saturating_add(known.offset.lowest).max(0);
        let shown_us = u64::try_from(shown).unwrap_or_default() / 1_000;
        self.counts_from(Reading { sent: now, shown_us, received: now }).since(now)
    }

    /// Why nothing that it grants counts at `now`.
    pub(crate) fn fast(&self, now: Time) -> Option<Fast> {
        self.fast.filter(|fast| now < fast.until)
    }
}

fn share(of: Duration, parts_per_million: u32) -> Duration {
    let nanos = of.as_nanos() * u128::from(parts_per_million) / 1_000_000;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

fn nanos_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn length(duration: Duration) -> i64 {
    nanos(nanos_of(duration))
}

fn nanos(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[path = "node_clock_tests.rs"]
mod tests;
