//! One node's clock compared with the client's clock: how far it has stepped ahead, and when its grants begin to count.
//!
//! A node expires keys by its own wall clock. If that steps ahead by d, every key that was granted before the step
//! is dropped up to d early, until the longest ttl has passed. So a grant alone does not prove that
//! the former holder's time is over:
//! 1. A is granted the lock for 10 s.
//! 2. The node's clock is set ahead by 5 s.
//! 3. After 5 s the key is gone, and B is granted the lock.
//! 4. A relies on the lock for 5 s more.
//!
//! With each grant the node reports its time T. A former holder was granted the lock when the node's clock was o ahead
//! of the client's, for a ttl that ends at T or earlier. It relies on the lock until T - o at most, on the client's
//! clock, less the drift allowance. So the grant counts from then on, with the least o of all times at which such a key
//! can have been granted. When the clock is set back, the T before that remains in force, because dropped keys do not
//! come back.
//!
//! If a node's clock has got ahead, either it has stepped, or the client's clock has stood still, for example while a
//! virtual machine was frozen. Readings cannot tell the two apart, even if all nodes deviate alike: they may have
//! one time source. So both are allowed for. The node's grants count later, as after a step of its clock. The client's
//! leases are extended again, as after a pause of the process.
//!
//! Report each [`Reading`] with [`handle_reading`](NodeClock::handle_reading), in the order in which they were
//! read. It returns when the grants of that reading begin to count, and the size of a new step. Between readings,
//! [`lag`](NodeClock::lag) is how much later a grant counts now, and [`fast`](NodeClock::fast) returns whether the
//! clock runs too fast for any of its grants to count.

use super::validity::{Drift, Time};
use std::collections::VecDeque;
use std::time::Duration;

/// How fast a clock may wander by itself, in parts per million. A larger change is a step. Crystals keep within
/// 100 ppm, and there are two.
const WANDER_PPM: u32 = 200;

/// Redis truncates expiry times to milliseconds.
const PRECISION: Duration = Duration::from_millis(1);

/// Length of the intervals in which the clock's rate is measured.
const RATE_INTERVAL: Duration = Duration::from_secs(1);

/// The clock runs fast if it gains too much in this many intervals in a row. Otherwise it has stepped.
const FAST_INTERVALS: u32 = 3;

/// Maximum number of earlier offsets (I12). Beyond it, neighbours are merged.
const MAX_PAST: usize = 64;

/// A reading of a node's clock: it showed this time between `sent` and `received` on the client's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) sent: Time,
    /// Microseconds since 1970, truncated.
    pub(crate) shown_us: u64,
    pub(crate) received: Time,
}

/// How far a node's clock is ahead of the client's, in nanoseconds: between `lowest` and `highest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offset {
    pub(crate) lowest: i64,
    pub(crate) highest: i64,
}

/// The effect of a reading on the grants that came with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadingResult {
    /// When they begin to count: from then on, no holder relies on a key that was dropped early.
    pub(crate) counts_from: Time,
    /// Upper bound of a step ahead that this reading revealed. It may also be the client's clock that stood still:
    /// then its own leases end sooner than they assume.
    pub(crate) ahead: Option<Duration>,
}

/// The node's clock runs fast, so its grants do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fast {
    /// How much it had gained when that was detected.
    pub(crate) ahead: Duration,
    /// When its grants count again, unless it still runs fast.
    pub(crate) until: Time,
}

/// State of one node's clock.
#[derive(Debug)]
pub(crate) struct NodeClock {
    rates: Rates,
    /// How long after a step a key can exist that was granted before it.
    key_lifetime: Duration,
    now: Option<CurrentOffset>,
    /// Earlier offsets, each further ahead than the previous one. Others do not matter.
    past: VecDeque<PastOffset>,
    /// Earliest time at which grants count, because of keys that were dropped before the clock was set back.
    dropped: Time,
    interval: Option<RateInterval>,
    fast: Option<Fast>,
}

/// Rates in parts per million, and the constant part of the drift allowance.
#[derive(Clone, Copy, Debug)]
struct Rates {
    factor: u32,
    /// Rate at which clocks wander without a step.
    wander: u32,
    /// Rate that remains of the allowance after the wander of three clocks. A holder gives up this share of its key's
    /// lifetime.
    spare: u32,
    constant: Duration,
}

#[derive(Clone, Copy, Debug)]
struct CurrentOffset {
    offset: Offset,
    /// When the first reading with this offset was received, and the last one sent.
    since: Time,
    at: Time,
}

#[derive(Clone, Copy, Debug)]
struct PastOffset {
    lowest: i64,
    /// When this offset ended, at the latest.
    until: Time,
    /// The `until` of the earliest offset that was merged into this one.
    earliest: Time,
}

/// Start of the interval in which the clock's rate is measured.
#[derive(Clone, Copy, Debug)]
struct RateInterval {
    offset: Offset,
    at: Time,
    /// Number of intervals in a row in which it ran fast, and its total gain in them.
    fast_intervals: u32,
    gained: i64,
}

impl Reading {
    /// The offset by this reading alone.
    pub(crate) fn offset(self) -> Offset {
        let shown = nanos(self.shown_us.saturating_mul(1_000));
        Offset {
            lowest: shown.saturating_sub(nanos(self.received.as_nanos())),
            highest: self.shown().saturating_sub(nanos(self.sent.as_nanos())),
        }
    }

    /// The latest time that the clock may have shown, in nanoseconds.
    fn shown(self) -> i64 {
        nanos(self.shown_us.saturating_mul(1_000)).saturating_add(1_000)
    }
}

impl Offset {
    fn widened(self, by: Duration) -> Self {
        let by = signed_nanos(by);
        let (lowest, highest) = (self.lowest.saturating_sub(by), self.highest.saturating_add(by));
        Self { lowest, highest }
    }

    /// The intersection; `None` if it is empty.
    pub(crate) fn narrowed(self, other: Self) -> Option<Self> {
        let (lowest, highest) = (self.lowest.max(other.lowest), self.highest.min(other.highest));
        (lowest <= highest).then_some(Self { lowest, highest })
    }

    /// The difference to `before`.
    pub(crate) fn beyond(self, before: Self) -> Self {
        Self {
            lowest: self.lowest.saturating_sub(before.highest),
            highest: self.highest.saturating_sub(before.lowest),
        }
    }
}

impl NodeClock {
    /// A clock without a reading. A key that was granted before a step can exist for `key_lifetime` after it.
    pub(crate) fn new(drift: Drift, key_lifetime: Duration) -> Self {
        let factor = drift.parts_per_million();
        let wander = WANDER_PPM.min(factor / 4);
        let constant = drift.constant().saturating_sub(PRECISION);
        let rates = Rates { factor, wander, spare: factor - 3 * wander, constant };
        let (now, past, dropped, interval, fast) = Default::default();
        Self { rates, key_lifetime, now, past, dropped, interval, fast }
    }

    /// Evaluates a reading for the grants that came before it over the same connection.
    pub(crate) fn handle_reading(&mut self, reading: Reading) -> ReadingResult {
        let received = reading.received;
        let seen = reading.offset();
        while self.past.front().is_some_and(|past| past.until.after(self.key_lifetime) <= received)
        {
            self.past.pop_front();
        }
        let Some(known) = self.now else {
            self.now = Some(CurrentOffset { offset: seen, since: received, at: reading.sent });
            self.interval =
                Some(RateInterval { offset: seen, at: reading.sent, fast_intervals: 0, gained: 0 });
            return ReadingResult { counts_from: received, ahead: None };
        };
        if received < known.since {
            // Another task reported a later reading first: this one is from before the last step.
            return ReadingResult { counts_from: self.counts_from(reading), ahead: None };
        }
        let before = known.offset.widened(share(received.since(known.at), self.rates.wander));
        let ahead = if let Some(offset) = before.narrowed(seen) {
            self.now = Some(CurrentOffset { offset, at: known.at.max(reading.sent), ..known });
            None
        } else {
            if seen.highest < before.lowest {
                // The grants that came with this reading may be from before the step.
                let shown = before.highest.saturating_add(nanos(received.as_nanos()));
                let relied_until = self.relied_until(shown, received);
                self.dropped =
                    self.dropped.max(relied_until.min(received.after(self.key_lifetime)));
            }
            self.record_past(before.lowest, received);
            self.now = Some(CurrentOffset { offset: seen, since: received, at: reading.sent });
            let by = seen.beyond(before);
            let most = Duration::from_nanos(u64::try_from(by.highest).unwrap_or_default());
            (by.lowest > 0).then_some(most)
        };
        self.check_rate(reading);
        ReadingResult { counts_from: self.counts_from(reading), ahead }
    }

    /// Records that the clock was at least `lowest` ahead until `until`.
    fn record_past(&mut self, lowest: i64, until: Time) {
        // Keys that were granted later with the same or a smaller offset are the worse case.
        while self.past.back().is_some_and(|past| past.lowest >= lowest) {
            self.past.pop_back();
        }
        self.past.push_back(PastOffset { lowest, until, earliest: until });
        if self.past.len() > MAX_PAST {
            self.merge_past(until);
        }
    }

    /// Merges the two neighbours for which that matters least: close together and long ago. The result has the smaller
    /// offset of the earlier one, until the end of the later one.
    fn merge_past(&mut self, now: Time) {
        let distance = |index: &usize| {
            let (earliest, until) = (self.past[*index].earliest, self.past[index + 1].until);
            until.since(earliest).as_nanos() * 1_000 / (now.since(until).as_nanos() + 1)
        };
        if let Some(index) = (0..self.past.len() - 1).min_by_key(distance)
            && let Some(later) = self.past.remove(index + 1)
        {
            self.past[index].until = later.until;
        }
    }

    /// When a grant that came with `reading` begins to count.
    fn counts_from(&self, reading: Reading) -> Time {
        let relied_until = self.relied_until(reading.shown(), reading.received);
        reading.received.max(self.dropped).max(relied_until)
    }

    /// The latest time at which any holder still relies on a key that expired before the clock showed `shown`,
    /// and that was granted with a smaller offset.
    fn relied_until(&self, shown: i64, now: Time) -> Time {
        let recent = self.past.iter().filter(|past| now < past.until.after(self.key_lifetime));
        let ends = recent.map(|past| {
            let over = u64::try_from(shown.saturating_sub(past.lowest)).unwrap_or_default();
            let over = Time::from_nanos(over);
            // The key was to exist from `past.until` on, and its holder gives up a share of its lifetime.
            let spared = share(over.since(past.until), self.rates.spare);
            let spared = spared.saturating_add(self.rates.constant);
            Time::from_nanos(over.as_nanos().saturating_sub(nanos_of(spared)))
        });
        ends.max().unwrap_or_default()
    }

    /// Checks whether the clock has gained too much in several intervals in a row.
    fn check_rate(&mut self, reading: Reading) {
        let (Some(interval), Some(known)) = (self.interval, self.now) else { return };
        let went_by = reading.received.since(interval.at);
        if went_by < RATE_INTERVAL {
            return;
        }
        let gained = known.offset.lowest.saturating_sub(interval.offset.highest);
        let is_fast = gained > signed_nanos(share(went_by, self.rates.factor));
        let (fast_intervals, gained) = if is_fast {
            (interval.fast_intervals + 1, interval.gained.saturating_add(gained))
        } else {
            (0, 0)
        };
        self.interval =
            Some(RateInterval { offset: known.offset, at: reading.sent, fast_intervals, gained });
        if fast_intervals >= FAST_INTERVALS {
            let ahead = Duration::from_nanos(u64::try_from(gained).unwrap_or_default());
            self.fast = Some(Fast { ahead, until: reading.received.after(self.key_lifetime) });
        }
    }

    /// How much later a grant at `now` counts.
    pub(crate) fn lag(&self, now: Time) -> Duration {
        let Some(known) = self.now else { return Duration::ZERO };
        let shown = nanos(now.as_nanos()).saturating_add(known.offset.lowest).max(0);
        let shown_us = u64::try_from(shown).unwrap_or_default() / 1_000;
        self.counts_from(Reading { sent: now, shown_us, received: now }).since(now)
    }

    /// Set while its grants do not count because it runs fast.
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

fn signed_nanos(duration: Duration) -> i64 {
    nanos(nanos_of(duration))
}

fn nanos(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[path = "node_clock_tests.rs"]
mod tests;
