//! The number of attempts that a client may have in progress, which follows the speed of the nodes and of the process.
//!
//! All attempts share the connections, so the replies to an attempt wait behind the replies to earlier ones. If more
//! attempts begin than can be answered within the node timeout, nearly all of them fail, and their releases and retries
//! keep it so. The limit grows while replies are fast, and halves when they take half of the node timeout.

use super::validity::Time;
use std::time::Duration;

pub(crate) struct AttemptLimit {
    limit: usize,
    node_timeout: Duration,
    reduced_at: Time,
}

impl AttemptLimit {
    /// Few enough for a debug build on a busy machine.
    const MIN: usize = 1 << 5;
    pub(crate) const FIRST: usize = 1 << 7;
    /// The absolute maximum (I12).
    const MAX: usize = 1 << 14;

    pub(crate) fn new(node_timeout: Duration) -> Self {
        Self { limit: Self::FIRST, node_timeout, reduced_at: Time::default() }
    }

    pub(crate) fn is_reached(&self, attempts: usize) -> bool {
        attempts >= self.limit
    }

    /// Records that an attempt which began at `t1` was decided after `response`, while `attempts` were in progress.
    /// Returns true if the limit has grown.
    pub(crate) fn handle_response(
        &mut self,
        t1: Time,
        response: Duration,
        attempts: usize,
        now: Time,
    ) -> bool {
        // Few attempts do not test the limit.
        if attempts <= self.limit / 2 {
            return false;
        }
        let grows = response < self.node_timeout / 4 && self.limit < Self::MAX;
        if grows {
            self.limit += 1;
        } else if response >= self.node_timeout / 2 && t1 >= self.reduced_at {
            // Attempts that began before do not show the effect of this reduction.
            (self.limit, self.reduced_at) = ((self.limit / 2).max(Self::MIN), now);
        }
        grows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(after: u64) -> Time {
        Time::default().after(ms(after))
    }

    #[test]
    fn limit_grows_with_fast_replies_and_halves_once_with_slow_ones() {
        let mut limit = AttemptLimit::new(ms(40));
        let first = AttemptLimit::FIRST;
        assert!(!limit.is_reached(first - 1) && limit.is_reached(first));
        assert!(!limit.handle_response(at(0), ms(1), first / 2, at(1)), "too few attempts");
        assert!(limit.handle_response(at(0), ms(9), first, at(9)));
        assert!(!limit.is_reached(first) && limit.is_reached(first + 1));
        assert!(!limit.handle_response(at(0), ms(10), first, at(10)), "neither fast nor slow");
        assert!(!limit.handle_response(at(0), ms(19), first, at(19)));
        assert!(limit.is_reached(first + 1) && !limit.is_reached(first));
        for began in [0, 1, 19] {
            limit.handle_response(at(began), ms(20), first, at(20));
            assert!(limit.is_reached(first / 2) && !limit.is_reached(first / 2 - 1), "{began}");
        }
        limit.handle_response(at(20), ms(20), first, at(40));
        assert!(limit.is_reached(first / 4) && !limit.is_reached(first / 4 - 1));
    }

    #[test]
    fn limit_stays_within_its_bounds() {
        let mut limit = AttemptLimit::new(ms(40));
        for round in 0..20 {
            limit.handle_response(at(round), ms(40), AttemptLimit::MAX, at(round));
        }
        assert!(limit.is_reached(AttemptLimit::MIN) && !limit.is_reached(AttemptLimit::MIN - 1));
        let grown = (0..2 * AttemptLimit::MAX)
            .filter(|_| limit.handle_response(at(99), ms(1), AttemptLimit::MAX, at(99)));
        assert_eq!(grown.count(), AttemptLimit::MAX - AttemptLimit::MIN);
        assert!(!limit.is_reached(AttemptLimit::MAX - 1) && limit.is_reached(AttemptLimit::MAX));
    }
}
