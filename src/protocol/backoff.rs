//! When to try again: what a node refused, and to connect to it.
//!
//! [`Backoff`] is exponential backoff with equal jitter: each pause is drawn from the upper half of a span
//! that doubles with every failure up to the longest. Tell it of failures by
//! [`handle_failure`](Backoff::handle_failure) and of what went well by
//! [`handle_success`](Backoff::handle_success); ask it by [`next_try`](Backoff::next_try) when to try
//! again. [`recover`](Backoff::recover) says that there is no reason any more to wait.
//!
//! [`Reconnect`] is that for connections. It is told of each that was made
//! ([`handle_connected`](Reconnect::handle_connected)), could not be made
//! ([`handle_unreachable`](Reconnect::handle_unreachable)) or was lost
//! ([`handle_loss`](Reconnect::handle_loss)). One that had lasted is replaced at once, without a pause and
//! without a word to anybody; a node that drops each connection as soon as it is made is met with longer
//! and longer pauses.
//!
//! Neither draws random numbers: where a pause begins, the caller gives a word drawn evenly from all.

use super::retry::draw;
use super::validity::Time;
use std::time::Duration;

/// Exponential backoff with equal jitter.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    last: Duration,
    failures: u32,
    next_try: Time,
}

impl Backoff {
    /// Between two tries of a command that the node answered with an error, such as `BUSY`.
    const FIRST_REPEAT: Duration = Duration::from_millis(10);
    const LAST_REPEAT: Duration = Duration::from_millis(500);

    /// The first try may come at once.
    fn new(first: Duration, last: Duration) -> Self {
        Self { first, last, failures: 0, next_try: Time::default() }
    }

    /// For commands that a node refuses, and that have to reach it all the same.
    pub(crate) fn of_repeats() -> Self {
        Self::new(Self::FIRST_REPEAT, Self::LAST_REPEAT)
    }

    /// A try has failed at `now`. Several that were under way together count once: those that fail
    /// before the next try is due.
    pub(crate) fn handle_failure(&mut self, now: Time, random: u64) {
        if now >= self.next_try {
            let span = self.first.saturating_mul(1 << self.failures.min(16)).min(self.last);
            self.failures = self.failures.saturating_add(1);
            self.next_try = now.after(draw(span / 2, span, random));
        }
    }

    /// It went well: the next pause is a short one again. One that has begun is not cut short.
    pub(crate) fn handle_success(&mut self) {
        self.failures = 0;
    }

    /// There is news of the other side: the next try may come at once, and the pause after it is a short
    /// one.
    pub(crate) fn recover(&mut self, now: Time) {
        self.failures = 0;
        self.next_try = now;
    }

    /// No try before then.
    pub(crate) fn next_try(&self) -> Time {
        self.next_try
    }
}

/// When to connect to a node.
#[derive(Clone, Debug)]
pub(crate) struct Reconnect {
    backoff: Backoff,
    connected_at: Option<Time>,
}

/// What the loss of a connection means for those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionLoss {
    /// It had lasted: another is made at once, and commands wait for that.
    Blip,
    /// The node is down.
    Outage,
}

impl Reconnect {
    /// Between two tries: a node that comes back is found within a second, and is not met by all clients
    /// at once. A connection has lasted if it was longer than the last pause.
    const FIRST_PAUSE: Duration = Duration::from_millis(20);
    pub(crate) const LAST_PAUSE: Duration = Duration::from_secs(1);

    /// The first try may come at once.
    pub(crate) fn new() -> Self {
        Self { backoff: Backoff::new(Self::FIRST_PAUSE, Self::LAST_PAUSE), connected_at: None }
    }

    /// A connection was made.
    pub(crate) fn handle_connected(&mut self, now: Time) {
        self.connected_at = Some(now);
    }

    /// No connection could be made.
    pub(crate) fn handle_unreachable(&mut self, now: Time, random: u64) {
        self.backoff.handle_failure(now, random);
    }

    /// The connection was lost, or given up because the node hung: then the node is down, also if the
    /// connection had lasted.
    pub(crate) fn handle_loss(&mut self, is_hung: bool, now: Time, random: u64) -> ConnectionLoss {
        let lasted = self.connected_at.take().map(|since| now.since(since));
        let has_lasted = lasted.is_some_and(|lasted| lasted > Self::LAST_PAUSE);
        if has_lasted {
            self.backoff.recover(now);
        }
        if has_lasted && !is_hung {
            return ConnectionLoss::Blip;
        }
        self.backoff.handle_failure(now, random);
        ConnectionLoss::Outage
    }

    /// When to try to connect.
    pub(crate) fn next_try(&self) -> Time {
        self.backoff.next_try()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LOW: u64 = 0;
    const HIGH: u64 = u64::MAX;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(ms: u64) -> Time {
        Time::default().after(Duration::from_millis(ms))
    }

    /// Fails whenever a try is due; how long it waited each time, in milliseconds rounded up.
    fn pauses(backoff: &mut Backoff, random: u64, count: usize) -> Vec<u128> {
        let mut pause = || {
            let now = backoff.next_try();
            backoff.handle_failure(now, random);
            backoff.next_try().since(now).as_nanos().div_ceil(1_000_000)
        };
        (0..count).map(|_| pause()).collect()
    }

    #[test]
    fn pauses_double_to_the_longest_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::of_repeats();
        assert_eq!(backoff.next_try(), at(0));
        assert_eq!(pauses(&mut backoff, LOW, 8), [5, 10, 20, 40, 80, 160, 250, 250]);
        backoff.handle_success();
        assert_eq!(pauses(&mut backoff, HIGH, 8), [10, 20, 40, 80, 160, 320, 500, 500]);
        assert_eq!(pauses(&mut backoff, LOW, 100)[99], 250, "for ever");
        let begun = backoff.next_try();
        backoff.handle_success();
        assert_eq!(backoff.next_try(), begun, "a success does not end the pause");
        backoff.recover(at(9));
        assert_eq!(backoff.next_try(), at(9));
        assert_eq!(pauses(&mut backoff, HIGH, 2), [10, 20]);
    }

    #[test]
    fn what_fails_together_counts_once() {
        let mut backoff = Backoff::of_repeats();
        backoff.handle_failure(at(1), LOW);
        for now in [1, 3, 5] {
            backoff.handle_failure(at(now), HIGH);
            assert_eq!(backoff.next_try(), at(6));
        }
        backoff.handle_failure(at(6), LOW);
        assert_eq!(backoff.next_try(), at(16));
    }

    #[test]
    fn a_connection_that_had_lasted_is_replaced_at_once() {
        let mut it = Reconnect::new();
        it.handle_unreachable(at(0), LOW);
        it.handle_unreachable(at(10), LOW);
        assert_eq!(it.next_try(), at(30));
        it.handle_connected(at(40));
        assert_eq!(
            it.handle_loss(false, at(1_040), LOW),
            ConnectionLoss::Outage,
            "not longer than a pause"
        );
        assert_eq!(it.next_try(), at(1_080), "the third pause");
        it.handle_connected(at(2_000));
        assert_eq!(it.handle_loss(false, at(3_001), LOW), ConnectionLoss::Blip);
        assert_eq!(it.next_try(), at(3_001));
        it.handle_unreachable(at(3_001), LOW);
        assert_eq!(it.next_try(), at(3_011), "the first pause again");
        it.handle_connected(at(4_000));
        assert_eq!(it.handle_loss(true, at(9_000), LOW), ConnectionLoss::Outage, "it hung");
        assert_eq!(it.next_try(), at(9_010));
        assert_eq!(it.handle_loss(false, at(9_100), LOW), ConnectionLoss::Outage, "there was none");
    }

    /// What happens to somebody who connects again and again: each try is taken, or not; a connection is
    /// lost after so many milliseconds.
    fn fates() -> impl Strategy<Value = Vec<(bool, u64, bool, u64)>> {
        proptest::collection::vec((any::<bool>(), 0..3_000_u64, any::<bool>(), any::<u64>()), 1..60)
    }

    proptest! {
        #[test]
        fn pauses_follow_from_how_often_it_went_wrong_in_a_row(fates in fates()) {
            let mut it = Reconnect::new();
            // The truth: failures since the start, or since a connection was lost that had lasted.
            let mut failures = 0;
            for (is_taken, lasts, is_hung, random) in fates {
                let tried = it.next_try();
                let mut ended = tried;
                let mut is_at_once = false;
                if is_taken {
                    it.handle_connected(tried);
                    ended = tried.after(ms(lasts));
                    let lost = it.handle_loss(is_hung, ended, random);
                    if lasts > 1_000 {
                        failures = 0;
                        is_at_once = !is_hung;
                    }
                    prop_assert_eq!(lost == ConnectionLoss::Blip, is_at_once);
                } else {
                    it.handle_unreachable(tried, random);
                }
                let pause = it.next_try().since(ended);
                if is_at_once {
                    prop_assert_eq!(pause, Duration::ZERO);
                } else {
                    let most = if failures < 6 { 20 << failures } else { 1_000 };
                    prop_assert!(pause >= ms(most) / 2 && pause <= ms(most), "{:?}", pause);
                    failures += 1;
                }
            }
        }
    }
}
