//! Comparison of the nodes' wall clocks.

use crate::protocol::Offset;
use crate::wire::short;
use std::fmt;
use std::time::Duration;

/// The offset of a node's wall clock from the other nodes' clocks, at the time of the check.
///
/// The reference is the median of the other nodes' clocks. If their number is even, the median is a range between two
/// clocks. The offset is then zero if this node's clock is within the range, and otherwise the distance to its nearer
/// end.
///
/// With three or more nodes, the check identifies a single wrong clock. With two nodes, it cannot determine which clock
/// is wrong, so both nodes have an offset.
///
/// The `Display` text has the form `60.0s ±0.2ms ahead`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ClockOffset {
    #[cfg_attr(feature = "serde", serde(rename = "offset_seconds", serialize_with = "in_seconds"))]
    nanos: i128,
    #[cfg_attr(
        feature = "serde",
        serde(rename = "uncertainty_seconds", serialize_with = "crate::wire::seconds")
    )]
    uncertainty: Duration,
}

/// Serializes nanoseconds as a number of seconds.
#[cfg(feature = "serde")]
#[allow(clippy::cast_precision_loss, clippy::trivially_copy_pass_by_ref)]
fn in_seconds<S: serde::Serializer>(nanos: &i128, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(*nanos as f64 / 1e9)
}

impl ClockOffset {
    /// Returns the offset in microseconds: positive if this node's clock is ahead, negative if it is behind.
    pub fn as_micros(&self) -> i64 {
        let micros = self.nanos / 1000;
        i64::try_from(micros).unwrap_or(if micros < 0 { i64::MIN } else { i64::MAX })
    }

    /// Returns the absolute value of the offset.
    pub fn distance(&self) -> Duration {
        Duration::from_nanos(u64::try_from(self.nanos.unsigned_abs()).unwrap_or(u64::MAX))
    }

    /// Returns true if this node's clock is ahead of the other nodes' clocks.
    pub fn is_ahead(&self) -> bool {
        self.nanos > 0
    }

    /// Returns the maximum error of the offset. The exact time at which a node reads its clock is unknown within one
    /// round trip. The maximum error is therefore half of this node's shortest round trip, plus half of the longest of
    /// the other nodes' round trips.
    pub fn uncertainty(&self) -> Duration {
        self.uncertainty
    }

    /// Returns the smallest distance that is consistent with the uncertainty.
    pub(super) fn certain(&self) -> Duration {
        self.distance().saturating_sub(self.uncertainty)
    }
}

/// Returns twice the middle of `offset`'s range. Doubling avoids rounding.
fn twice_middle(offset: &Offset) -> i128 {
    i128::from(offset.lowest) + i128::from(offset.highest)
}

fn width(offset: &Offset) -> i128 {
    i128::from(offset.highest) - i128::from(offset.lowest)
}

/// Returns the offset of each node's clock. The offset is `None` if the node's clock was not read, or if no other clock
/// was read.
pub(super) fn offsets(readings: &[Option<Offset>]) -> Vec<Option<ClockOffset>> {
    let of = |(place, reading): (usize, &Option<Offset>)| {
        let reading = reading.as_ref()?;
        let others = readings.iter().enumerate().filter(|(other, _)| *other != place);
        let others: Vec<&Offset> = others.filter_map(|(_, other)| other.as_ref()).collect();
        offset(reading, &others)
    };
    readings.iter().enumerate().map(of).collect()
}

/// Two groups of nodes whose clocks disagree. Either group may be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClockDisagreement {
    pub(super) by: Duration,
    /// Indexes of the nodes whose clocks are near this client's clock.
    pub(super) near: Vec<usize>,
    pub(super) far: Vec<usize>,
}

/// Checks whether the clocks of the majority may be wrong, and returns the two groups that disagree. The majority may
/// be wrong if another node's clock differs from the majority by more than `limit`, and is less than half as far from
/// this client's clock as the majority is. `client` is the offset of this client's wall clock from its monotonic clock,
/// in nanoseconds.
pub(super) fn find_disagreement(
    readings: &[Option<Offset>],
    offsets: &[Option<ClockOffset>],
    client: i64,
    limit: Duration,
) -> Option<ClockDisagreement> {
    let from_client = |reading: &Offset| twice_middle(reading) / 2 - i128::from(client);
    let distances = readings.iter().zip(offsets).filter_map(|(reading, offset)| {
        let (reading, offset) = ((*reading)?, (*offset)?);
        let (own, others) = (from_client(&reading), from_client(&reading) - offset.nanos);
        let is_nearer = own.unsigned_abs() < others.unsigned_abs() / 2;
        (offset.certain() > limit && is_nearer).then(|| offset.distance())
    });
    let by = distances.max()?;
    let mut disagreement = ClockDisagreement { by, near: Vec::new(), far: Vec::new() };
    for (place, reading) in readings.iter().enumerate() {
        let Some(reading) = reading else { continue };
        let is_near = from_client(reading).unsigned_abs() < by.as_nanos() / 2;
        if is_near { &mut disagreement.near } else { &mut disagreement.far }.push(place);
    }
    Some(disagreement)
}

fn offset(own: &Offset, others: &[&Offset]) -> Option<ClockOffset> {
    let mut middles: Vec<i128> = others.iter().map(|other| twice_middle(other)).collect();
    middles.sort_unstable();
    let upper = *middles.get(middles.len() / 2)?;
    let lower = middles[(middles.len() - 1) / 2];
    let middle = twice_middle(own);
    let twice = middle - middle.clamp(lower, upper);
    // The error of a median is at most the largest error of its inputs.
    let widest = others.iter().map(|other| width(other)).max()?;
    let twice_unsure = width(own) + widest;
    let in_doubt = u64::try_from(twice_unsure / 2 + 1).unwrap_or(u64::MAX);
    Some(ClockOffset { nanos: twice / 2, uncertainty: Duration::from_nanos(in_doubt) })
}

impl fmt::Display for ClockOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.nanos < 0 { "behind" } else { "ahead" };
        write!(f, "{} ±{} {side}", short(self.distance()), short(self.uncertainty))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: i64 = 1_000_000;

    fn between(lowest: i64, highest: i64) -> Offset {
        Offset { lowest, highest }
    }

    fn at(middle_ms: i64, half_ms: i64) -> Offset {
        between((middle_ms - half_ms) * MS, (middle_ms + half_ms) * MS)
    }

    fn millis(readings: &[Option<Offset>]) -> Vec<Option<i64>> {
        let offsets = offsets(readings).into_iter();
        offsets.map(|offset| offset.map(|offset| offset.as_micros() / 1000)).collect()
    }

    #[test]
    fn single_wrong_clock_is_identified() {
        for (middles, expected) in [
            (&[60, 0, 0][..], &[60, 0, 0][..]),
            (&[0, -60, 0], &[0, -60, 0]),
            (&[0, 0, 0, 60], &[0, 0, 0, 60]),
            (&[0, 0, 60, 0, -9], &[0, 0, 60, 0, -9]),
            (&[1, 2, 3, 4, 5], &[-2, -1, 0, 1, 2]),
            // With two clocks, or two equal halves, the wrong side is unknown.
            (&[60, 0], &[60, -60]),
            (&[60, 0, 60, 0], &[60, -60, 60, -60]),
        ] {
            let readings: Vec<_> = middles.iter().map(|middle| Some(at(*middle, 1))).collect();
            let expected: Vec<_> = expected.iter().copied().map(Some).collect();
            assert_eq!(millis(&readings), expected, "{middles:?}");
        }
    }

    #[test]
    fn unread_clocks_are_ignored() {
        assert_eq!(millis(&[Some(at(5, 1))]), [None], "no other clock");
        assert_eq!(millis(&[Some(at(5, 1)), None]), [None, None]);
        assert_eq!(millis(&[Some(at(5, 1)), None, Some(at(2, 1))]), [Some(3), None, Some(-3)]);
        let offset = offsets(&[Some(at(60_000, 1)), Some(at(0, 2))])[0].expect("both were read");
        assert!(offset.is_ahead() && offset.certain() < offset.distance());
        assert_eq!(offset.to_string(), "60.0s ±3.0ms ahead");
    }

    proptest! {
        #[test]
        fn true_offset_is_within_the_uncertainty(
            clocks in prop::collection::vec((-50_i64..50, 0_i64..20, -100_i64..=100), 2..6),
        ) {
            let readings: Vec<_> = clocks.iter().map(|(ms, half, _)| Some(at(*ms, *half))).collect();
            let truth = clocks.iter().map(|(ms, half, share)| {
                let nanos = ms * MS + half * MS * share / 100;
                Some(between(nanos, nanos))
            });
            let truth: Vec<_> = truth.collect();
            for (seen, is) in offsets(&readings).into_iter().zip(offsets(&truth)) {
                let (seen, is) = (seen.expect("read"), is.expect("read"));
                let error = (seen.nanos - is.nanos).unsigned_abs();
                prop_assert!(error <= seen.uncertainty.as_nanos(), "{seen} is {is}");
            }
        }
    }
    #[test]
    fn majority_far_from_client_clock_is_a_dispute() {
        let limit = Duration::from_millis(125);
        let hour = 3_600_000;
        let of = |middles: &[i64], client_ms: i64| {
            let readings: Vec<_> = middles.iter().map(|middle| Some(at(*middle, 1))).collect();
            find_disagreement(&readings, &offsets(&readings), client_ms * MS, limit)
        };
        let both = |by_ms, near: &[usize], far: &[usize]| {
            let (by, near, far) = (Duration::from_millis(by_ms), near.to_vec(), far.to_vec());
            Some(ClockDisagreement { by, near, far })
        };
        assert_eq!(of(&[-hour, 0, -hour], 30), both(3_600_000, &[1], &[0, 2]));
        assert_eq!(of(&[-hour, 0], 0), both(3_600_000, &[1], &[0]));
        assert_eq!(of(&[-hour, 0, 0], 30), None, "the client agrees with the majority");
        assert_eq!(of(&[0, 5, -9], 5), None, "all agree");
        assert_eq!(of(&[0, 1_000, 0], 90_000), None, "the client's clock is wrong too");
    }
}
