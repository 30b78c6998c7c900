//! Detects steps of one node's clock, and determines when the node's grants count towards a quorum.
//!
//! A node expires keys by its own wall clock. If that clock steps forward by d, every key granted before the step
//! expires up to d early, until the longest ttl has passed. A grant alone therefore does not prove that the former
//! holder has stopped relying on its key:
//!
//! 1. Client A acquires the lock for 10 s.
//! 2. The node's clock is set ahead by 5 s.
//! 3. After 5 s, the key has expired, and client B acquires the lock.
//! 4. Client A relies on the lock for another 5 s.
//!
//! Each grant reports the node's time T. A former holder was granted the lock when the node's clock was o ahead of the
//! client's clock, with a ttl that ended at T or earlier. On the client's clock, the holder relies on the lock until
//! `T - o` at most, minus the drift allowance. The new grant counts from this time onwards. The computation uses the
//! smallest o of all times at which such a key can have been granted. If the node's clock is set back, the T before the
//! step remains in force, because expired keys do not reappear.
//!
//! If a node's clock has moved ahead, either it has stepped or the client's clock has stood still, for example while a
//! virtual machine was frozen. Readings cannot distinguish the two causes. Nodes may share a time source, so
//! even identical deviations of all nodes are no proof. Both causes are therefore handled: the node's grants
//! count later, as after a step of its clock, and the client extends its leases again, as after a pause of the process.
//!
//! Report each [`Reading`] with [`handle_reading`](NodeClock::handle_reading), in the order of the readings. The method
//! returns the time from which the grants of that reading count, and the size of a new step. Between readings,
//! [`lag`](NodeClock::lag) returns how long a new grant is deferred. [`fast`](NodeClock::fast) returns whether the
//! clock runs too fast for any grant to count.

use super::validity::{Drift, Time};
use std::collections::VecDeque;
use std::time::Duration;

/// The maximum rate at which two clocks drift apart without a step, in parts per million. A faster change is a step.
/// Crystals keep within 100 ppm, and two crystals are compared.
const WANDER_PPM: u32 = 200;

/// The precision of expiry times, which Redis truncates to milliseconds.
const PRECISION: Duration = Duration::from_millis(1);

const RATE_INTERVAL: Duration = Duration::from_secs(1);

/// The number of consecutive intervals in which a clock must gain too much time to be treated as fast. After fewer such
/// intervals, the clock is assumed to have stepped.
const FAST_INTERVALS: u32 = 3;

/// The maximum number of earlier offsets that are stored (I12: every queue is bounded). Beyond this number,
/// neighbouring offsets are merged.
const MAX_PAST: usize = 64;

/// A reading of a node's clock, which showed `server_time_us` between `sent` and `received` on the client's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) sent: Time,
    /// The time on the node's clock, in microseconds since 1970, truncated.
    pub(crate) server_time_us: u64,
    pub(crate) received: Time,
}

/// The range of a node clock's offset from the client's clock, in nanoseconds. A positive offset means that the node's
/// clock is ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offset {
    pub(crate) lowest: i64,
    pub(crate) highest: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadingResult {
    /// The time from which the node's grants count towards a quorum. From this time onwards, no holder relies on a key
    /// that expired early.
    pub(crate) counts_from: Time,
    /// The maximum size of a forward step that this reading revealed, or `None` without a step. If the client's clock
    /// has stood still instead, this client's leases end earlier than the client assumes.
    pub(crate) ahead: Option<Duration>,
}

/// A report that a node's clock runs fast, so that the node's grants do not count towards a quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fast {
    /// How much the clock had gained when it was found to run fast.
    pub(crate) ahead: Duration,
    /// The time from which the node's grants count again, provided that its clock no longer runs fast.
    pub(crate) until: Time,
}

#[derive(Debug)]
pub(crate) struct NodeClock {
    rates: Rates,
    /// The maximum time for which a key that was granted before a step can exist after the step.
    key_lifetime: Duration,
    now: Option<CurrentOffset>,
    /// Earlier offsets, each larger than the one before. Other earlier offsets do not affect the result and are not
    /// stored.
    past: VecDeque<PastOffset>,
    /// The time before which grants do not count, because a holder may rely on a key that expired before the clock was
    /// set back.
    dropped: Time,
    interval: Option<RateInterval>,
    fast: Option<Fast>,
}

/// How far clocks may drift apart, and how early holders stop relying on their keys. Rates are in parts per million.
#[derive(Clone, Copy, Debug)]
struct Rates {
    factor: u32,
    wander: u32,
    /// The share of a key's lifetime by which the holder stops relying on the key early. It is the rate of the drift
    /// allowance minus the wander of three clocks.
    spare: u32,
    constant: Duration,
}

#[derive(Clone, Copy, Debug)]
struct CurrentOffset {
    offset: Offset,
    /// When the first reading with this offset was received.
    since: Time,
    /// When the last reading with this offset was sent.
    at: Time,
}

#[derive(Clone, Copy, Debug)]
struct PastOffset {
    lowest: i64,
    /// An upper bound for the time at which the clock left this offset.
    until: Time,
    /// The `until` of the earliest offset that was merged into this one.
    earliest: Time,
}

/// The start of an interval in which the clock's rate is measured.
#[derive(Clone, Copy, Debug)]
struct RateInterval {
    offset: Offset,
    at: Time,
    /// The number of consecutive intervals in which the clock ran fast.
    fast_intervals: u32,
    /// The total gain in these intervals, in nanoseconds.
    gained: i64,
}

impl Reading {
    /// Returns the range of offsets that are consistent with this reading alone.
    pub(crate) fn offset(self) -> Offset {
        let shown = nanos(self.server_time_us.saturating_mul(1_000));
        Offset {
            lowest: shown.saturating_sub(nanos(self.received.as_nanos())),
            highest: self.shown().saturating_sub(nanos(self.sent.as_nanos())),
        }
    }

    /// Returns the latest time that the clock may have shown, in nanoseconds. The reading is truncated to microseconds.
    fn shown(self) -> i64 {
        nanos(self.server_time_us.saturating_mul(1_000)).saturating_add(1_000)
    }
}

impl Offset {
    fn widened(self, by: Duration) -> Self {
        let by = signed_nanos(by);
        let (lowest, highest) = (self.lowest.saturating_sub(by), self.highest.saturating_add(by));
        Self { lowest, highest }
    }

    /// Returns the intersection of both offsets, or `None` if the intersection is empty.
    pub(crate) fn narrowed(self, other: Self) -> Option<Self> {
        let (lowest, highest) = (self.lowest.max(other.lowest), self.highest.min(other.highest));
        (lowest <= highest).then_some(Self { lowest, highest })
    }

    /// Returns by how much the offset can have changed from `before` to this offset.
    pub(crate) fn beyond(self, before: Self) -> Self {
        Self {
            lowest: self.lowest.saturating_sub(before.highest),
            highest: self.highest.saturating_sub(before.lowest),
        }
    }
}

impl NodeClock {
    /// Creates a clock without readings. A key granted before a step can exist for at most `key_lifetime` after the
    /// step.
    pub(crate) fn new(drift: Drift, key_lifetime: Duration) -> Self {
        let factor = drift.parts_per_million();
        let wander = WANDER_PPM.min(factor / 4);
        let constant = drift.constant().saturating_sub(PRECISION);
        let rates = Rates { factor, wander, spare: factor - 3 * wander, constant };
        let (now, past, dropped, interval, fast) = Default::default();
        Self { rates, key_lifetime, now, past, dropped, interval, fast }
    }

    /// Evaluates a reading. The result applies to the grants received before the reading over the same connection.
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
            // A later reading was reported first, so this reading is from before the last step.
            return ReadingResult { counts_from: self.counts_from(reading), ahead: None };
        }
        let before = known.offset.widened(share(received.since(known.at), self.rates.wander));
        let ahead = if let Some(offset) = before.narrowed(seen) {
            self.now = Some(CurrentOffset { offset, at: known.at.max(reading.sent), ..known });
            None
        } else {
            if seen.highest < before.lowest {
                // The grants received with this reading may be from before the step.
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

    /// Records that the clock was at least `lowest` nanoseconds ahead until `until`.
    fn record_past(&mut self, lowest: i64, until: Time) {
        // Keys granted later with the same or a smaller offset are the worse case.
        while self.past.back().is_some_and(|past| past.lowest >= lowest) {
            self.past.pop_back();
        }
        self.past.push_back(PastOffset { lowest, until, earliest: until });
        if self.past.len() > MAX_PAST {
            self.merge_past(until);
        }
    }

    /// Merges the two neighbouring offsets that are closest together relative to their age. The merged offset has the
    /// smaller value of the earlier offset and ends with the later offset.
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

    /// Returns the time from which a grant received with `reading` counts towards a quorum.
    fn counts_from(&self, reading: Reading) -> Time {
        let relied_until = self.relied_until(reading.shown(), reading.received);
        reading.received.max(self.dropped).max(relied_until)
    }

    /// Returns the latest time at which any holder still relies on a key that expired before the clock showed `shown`.
    /// Only keys granted with a smaller offset are considered.
    fn relied_until(&self, shown: i64, now: Time) -> Time {
        let recent = self.past.iter().filter(|past| now < past.until.after(self.key_lifetime));
        let ends = recent.map(|past| {
            let over = u64::try_from(shown.saturating_sub(past.lowest)).unwrap_or_default();
            let over = Time::from_nanos(over);
            // The key's lifetime is counted from `past.until`. The holder does not rely on the last share of this
            // lifetime.
            let spared = share(over.since(past.until), self.rates.spare);
            let spared = spared.saturating_add(self.rates.constant);
            Time::from_nanos(over.as_nanos().saturating_sub(nanos_of(spared)))
        });
        ends.max().unwrap_or_default()
    }

    /// Marks the clock as fast if it gained too much in [`FAST_INTERVALS`] consecutive intervals.
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

    /// Returns how long a grant received at `now` is deferred before it counts towards a quorum.
    pub(crate) fn lag(&self, now: Time) -> Duration {
        let Some(known) = self.now else { return Duration::ZERO };
        let shown = nanos(now.as_nanos()).saturating_add(known.offset.lowest).max(0);
        let server_time_us = u64::try_from(shown).unwrap_or_default() / 1_000;
        self.counts_from(Reading { sent: now, server_time_us, received: now }).since(now)
    }

    /// Returns the details if the clock runs fast at `now`, so that the node's grants do not count. Returns `None`
    /// otherwise.
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
