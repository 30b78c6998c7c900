//! Detects that a runtime runs the client's task too late, because the runtime is blocked or its owner does not drive
//! it.

use crate::protocol::Time;
use std::time::Duration;

/// Time within which a runtime must run a task that was woken. After this time, the task is late.
const LIMIT: Duration = Duration::from_millis(100);

/// Minimum time between two replacements of the client's task, or between two turns of the alarm in its place.
const PAUSE: Duration = Duration::from_millis(500);

pub(super) struct Lateness {
    limit: Duration,
    /// Whether the client is pinned to one runtime. The tasks of a pinned client are not replaced.
    is_pinned: bool,
    next_try: Time,
}

impl Lateness {
    pub(super) fn new(node_timeout: Duration, is_pinned: bool) -> Self {
        Self { limit: LIMIT.min(node_timeout / 2), is_pinned, next_try: Time::default() }
    }

    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    pub(super) fn late_at(&self, woken_at: Time) -> Time {
        woken_at.after(self.limit)
    }

    /// Checks a task that was woken at `woken_at` and has not run since. Returns the time of the next check, and true
    /// if the task must be replaced at `now`.
    pub(super) fn check(&mut self, woken_at: Time, now: Time) -> (Time, bool) {
        let at = self.late_at(woken_at).max(self.next_try);
        if now < at {
            return (at, false);
        }
        self.handle_replacement(now);
        // The alarm also fires for a pinned client: its turn reads the replies that a blocked runtime does not notice.
        (self.next_try, !self.is_pinned)
    }

    pub(super) fn handle_replacement(&mut self, now: Time) {
        self.next_try = now.after(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::default().after(Duration::from_millis(ms))
    }

    #[test]
    fn late_task_is_replaced_once_per_pause_after_its_limit() {
        let mut lateness = Lateness::new(Duration::from_secs(1), false);
        assert_eq!(lateness.check(at(1_000), at(1_099)), (at(1_100), false));
        assert_eq!(lateness.check(at(1_000), at(1_100)), (at(1_600), true));
        assert_eq!(lateness.check(at(1_000), at(1_599)), (at(1_600), false));
        assert_eq!(lateness.check(at(1_550), at(1_640)), (at(1_650), false));
        assert_eq!(lateness.check(at(1_550), at(1_650)), (at(2_150), true));
        lateness.handle_replacement(at(2_000));
        assert_eq!(lateness.check(at(1_800), at(2_499)), (at(2_500), false));
    }

    #[test]
    fn late_task_is_replaced_within_node_timeout_unless_pinned() {
        let mut lateness = Lateness::new(Duration::from_millis(50), false);
        assert_eq!(lateness.check(at(0), at(25)), (at(525), true));
        let mut lateness = Lateness::new(Duration::from_millis(50), true);
        assert_eq!(lateness.check(at(0), at(25)), (at(525), false), "the alarm fires again");
    }
}
