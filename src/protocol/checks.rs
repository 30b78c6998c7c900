//! Rate limit for the checks that a lease is still held.
//!
//! [`Checks::request`] requests a check. [`Checks::due`] returns when the check may begin, and [`Checks::begin`] begins
//! it. The caller then reports the requests of the check with [`Checks::handle_begun`] and [`Checks::handle_end`].

use super::validity::Time;
use std::time::Duration;

/// The minimum time between two checks. Other clients can change a key thousands of times per second.
const CHECK_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(crate) struct Checks {
    /// The earliest time of the next check.
    next: Time,
    /// The time by which the running check will have ended. `None` if no check is running.
    under_way: Option<Time>,
    requested: CheckKind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CheckKind {
    #[default]
    None,
    /// Check whether the lease is still held.
    Check,
    /// Check whether the lease is still held, and extend it.
    Renewal,
}

impl Checks {
    /// Requests a check of the kind `what`. If a check is already requested, the stronger of the two kinds applies.
    pub(crate) fn request(&mut self, what: CheckKind) {
        self.requested = self.requested.max(what);
    }

    /// Returns when the requested check may begin, or `None` if no check is requested.
    pub(crate) fn due(&self) -> Option<Time> {
        let next = self.under_way.map_or(self.next, |until| until.max(self.next));
        (self.requested != CheckKind::None).then_some(next)
    }

    /// Begins the requested check and returns its kind. Returns `None` if no check is requested, or if the check is not
    /// due at `now`.
    pub(crate) fn begin(&mut self, now: Time) -> Option<CheckKind> {
        self.due().filter(|due| now >= *due)?;
        let next = Self { next: now.after(CHECK_PAUSE), ..Self::default() };
        Some(std::mem::replace(self, next).requested)
    }

    /// Records that the requests of the check were sent and will end by `close_at`.
    pub(crate) fn handle_begun(&mut self, close_at: Time) {
        self.under_way = Some(close_at);
    }

    pub(crate) fn handle_end(&mut self) {
        self.under_way = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::default().after(Duration::from_millis(ms))
    }

    #[test]
    fn checks_run_one_at_a_time_at_a_limited_rate() {
        let mut checks = Checks::default();
        assert_eq!((checks.due(), checks.begin(at(9))), (None, None), "no check is needed");
        checks.request(CheckKind::Check);
        checks.request(CheckKind::Renewal);
        checks.request(CheckKind::Check);
        assert_eq!(checks.begin(at(1_000)), Some(CheckKind::Renewal), "the strongest request");
        checks.handle_begun(at(1_500));
        assert_eq!(checks.due(), None);
        checks.request(CheckKind::Check);
        assert_eq!(checks.due(), Some(at(1_500)), "one is under way");
        assert_eq!(checks.begin(at(1_499)), None);
        checks.handle_end();
        assert_eq!(checks.due(), Some(at(1_100)), "100 ms apart");
        assert_eq!(checks.begin(at(1_100)), Some(CheckKind::Check));
    }
}
