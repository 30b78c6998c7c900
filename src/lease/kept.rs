//! The request (acquire or extension) that a lease's current validity is computed from.

use super::extension::Extension;
use crate::protocol::{Drift, Extended, Goal, Round, Time, Ttl};
use crate::sync::lock;
use std::sync::Mutex;
use std::time::Duration;

/// T1 and ttl of that request.
pub(super) struct Kept(Mutex<(Time, Ttl)>);

impl Kept {
    pub(super) fn new(t1: Time, ttl: Ttl) -> Self {
        Self(Mutex::new((t1, ttl)))
    }

    /// Handles the end of `extension`. It replaces the recorded request if the validity comes from
    /// it.
    pub(super) fn note(&self, extension: &Extension, extended: Extended) {
        let goal = extension.tally.with_round(Round::goal);
        if let (Goal::Extend { proposed, .. }, Extended::Until(until)) = (goal, extended)
            && proposed == until
        {
            let t1 = extension.tally.t1();
            *lock(&self.0) = (t1, Ttl::covering(extension.until.since(t1)));
        }
    }

    /// True if keys may expire before the lease's validity ends. `since` returns the time by which
    /// node clocks have stepped forward since a given time.
    pub(super) fn may_end_early(&self, drift: Drift, since: impl FnOnce(Time) -> Duration) -> bool {
        let (t1, ttl) = *lock(&self.0);
        since(t1) > drift.allowance(ttl)
    }
}

#[cfg(test)]
mod tests {
    use super::super::extension::Cause;
    use super::*;
    use crate::protocol::Quorum;
    use crate::round::Tally;
    use crate::time::Clock;
    use std::sync::Weak;

    fn seconds(count: u64) -> Time {
        Time::from_nanos(count * 1_000_000_000)
    }

    /// An extension from `t1` whose validity would end at `proposed`.
    fn extension(t1: Time, proposed: Time) -> Extension {
        let round =
            Round::new(Quorum::majority(1), Goal::Extend { current: seconds(59), proposed });
        let tally = Tally::new(round, t1, &Clock::default());
        let (close_at, until) = (proposed, proposed.after(Duration::from_secs(1)));
        Extension { tally, close_at, state: Weak::new(), until, cause: Cause::Check }
    }

    #[test]
    fn steps_count_since_the_extension_that_gave_the_validity() {
        let sixty_seconds = Ttl::covering(Duration::from_secs(60));
        let kept = Kept::new(seconds(0), sixty_seconds);
        let step_at_ten = |t1: Time| {
            if t1 < seconds(10) { Duration::from_secs(2) } else { Duration::ZERO }
        };
        let is_early = || kept.may_end_early(Drift::DEFAULT, step_at_ten);
        assert!(is_early());
        // A shorter extension does not change the validity, which the acquire gave.
        kept.note(&extension(seconds(20), seconds(40)), Extended::Until(seconds(59)));
        assert!(is_early());
        kept.note(&extension(seconds(30), seconds(89)), Extended::Unchanged(seconds(59)));
        assert!(is_early());
        kept.note(&extension(seconds(31), seconds(90)), Extended::Until(seconds(90)));
        assert!(!is_early());
    }
}
