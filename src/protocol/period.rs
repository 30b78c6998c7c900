//! Once per period: the number of a period, and whether its job may run.
//!
//! Each node keeps a counter beside a job's key: the number of the last period that a call has taken, and a record of
//! this call. A command stores the number on all nodes and returns whether the period was free. A job may run if the
//! period was free on at least a quorum of nodes, and taken by another call on **no** node. Two quorums share a node, and
//! that node stores the number for one call only. So a second run in the same period needs nodes that lose their
//! counters.

use super::round::Round;
use super::validity::Ttl;
use std::time::Duration;

/// How much longer than two periods a node keeps a counter, in seconds. The clocks of two machines may differ by more
/// than a short period.
const EXTRA_SECONDS: u64 = 60;

/// The replies to a request for a job's counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeriodState {
    /// The period is free on a quorum of nodes, and taken on none. After a commit: a quorum has stored the number for
    /// this call.
    Open,
    /// The period is taken on at least one node.
    Taken {
        /// Whether the period is free on another node.
        is_partial: bool,
    },
    /// Too few nodes replied with a vote that counts.
    Unknown,
}

impl PeriodState {
    /// Evaluates a decided round. `free` is the number of nodes where the period is free, whether or not their votes
    /// count.
    pub(crate) fn new(round: &Round, free: usize) -> Self {
        if round.denied().len() > 0 {
            return Self::Taken { is_partial: free > 0 };
        }
        if round.quorum().reached(round.granted().len()) { Self::Open } else { Self::Unknown }
    }
}

/// Returns the number of the period that contains `wall_us`, in microseconds since 1970. Periods begin at multiples of
/// `period` plus `offset`. `period` must not be shorter than a microsecond.
pub(crate) fn period_number(wall_us: u64, period: Duration, offset: Duration) -> u64 {
    let since = u128::from(wall_us).saturating_sub(offset.as_micros());
    let number = since.checked_div(period.as_micros()).unwrap_or_default();
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Returns the beginning of the period `number`, in microseconds since 1970.
pub(crate) fn period_begin(number: u64, period: Duration, offset: Duration) -> u64 {
    let begin = period.as_micros().saturating_mul(number.into()).saturating_add(offset.as_micros());
    if number == 0 { 0 } else { u64::try_from(begin).unwrap_or(u64::MAX) }
}

/// Returns the TTL of a job's counter: two periods and a minute. `None` if that is no valid TTL.
pub(crate) fn counter_ttl(period: Duration) -> Option<Ttl> {
    Ttl::from_duration(period.saturating_mul(2).saturating_add(Duration::from_secs(EXTRA_SECONDS)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Goal, NodeId, Quorum, Time, Vote};

    const DAY: Duration = Duration::from_hours(24);

    #[test]
    fn periods_begin_at_multiples_plus_offset() {
        let us = |seconds: u64| seconds * 1_000_000;
        let day = |wall_us, offset| period_number(wall_us, DAY, Duration::from_secs(offset));
        assert_eq!([day(0, 0), day(us(86_400) - 1, 0), day(us(86_400), 0)], [0, 0, 1]);
        let three = 3 * 3_600;
        assert_eq!(day(us(86_400), three), 0);
        assert_eq!(day(us(86_400 + three) - 1, three), 0);
        assert_eq!(day(us(86_400 + three), three), 1);
        assert_eq!(day(us(1), three), 0, "before the first period");
        assert_eq!(
            period_number(u64::MAX, Duration::from_secs(1), Duration::ZERO),
            18_446_744_073_709
        );
    }

    #[test]
    fn time_is_not_before_the_begin_of_its_own_period_only() {
        let second = Duration::from_secs(1);
        for (period, offset) in [(DAY, Duration::ZERO), (DAY, 3 * second), (second, second / 3)] {
            for wall_us in [1_469_000_000_000_000, 1_469_000_000_000_001, 5, 86_400_000_000] {
                let number = period_number(wall_us, period, offset);
                let begin = |number| period_begin(number, period, offset);
                assert!(begin(number) <= wall_us && wall_us < begin(number + 1), "{wall_us}");
            }
        }
    }

    #[test]
    fn counter_outlives_two_periods() {
        for period in [Duration::from_secs(1), DAY, 30 * DAY] {
            let ttl = counter_ttl(period).expect("a valid ttl");
            assert!(
                ttl.as_duration() >= 2 * period + Duration::from_secs(EXTRA_SECONDS),
                "{period:?}"
            );
        }
    }

    /// Plays all votes of up to five nodes.
    #[test]
    fn job_runs_only_with_a_quorum_and_without_a_denial() {
        for nodes in 1..=5 {
            let quorum = Quorum::majority(nodes);
            for votes in 0..3_usize.pow(u32::try_from(nodes).expect("few")) {
                let mut round = Round::new(quorum, Goal::Survey);
                let vote = |node: usize| match votes
                    / 3_usize.pow(u32::try_from(node).expect("few"))
                    % 3
                {
                    0 => Vote::Granted,
                    1 => Vote::Denied,
                    _ => Vote::Failed,
                };
                for node in 0..nodes {
                    round.handle_vote(NodeId::new(node), vote(node), Time::default());
                }
                let count = |wanted| (0..nodes).filter(|node| vote(*node) == wanted).count();
                let (free, denied) = (count(Vote::Granted), count(Vote::Denied));
                let expected = match (denied, 2 * free > nodes) {
                    (0, true) => PeriodState::Open,
                    (0, false) => PeriodState::Unknown,
                    _ => PeriodState::Taken { is_partial: free > 0 },
                };
                assert_eq!(PeriodState::new(&round, free), expected, "{votes} of {nodes}");
            }
        }
    }
}
