//! When the nodes are asked whether a lease is still held: not more often than they can bear.
//!
//! - Events in: [`Checks::want`] when something happened; [`Checks::begin`] when one may begin;
//!   [`Checks::handle_begun`] and [`Checks::handle_end`] for one under way.
//! - The next timeout is [`Checks::due`].

use super::validity::Time;
use std::time::Duration;

/// The least time between two checks: others can touch a key thousands of times a second.
const CHECK_PAUSE: Duration = Duration::from_millis(100);

/// The checks of one lease.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    /// Not before then again.
    next: Time,
    /// One is under way, until then at the latest.
    under_way: Option<Time>,
    wanted: Wanted,
}

/// What is wanted since the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wanted {
    #[default]
    Nothing,
    /// To know whether it is still held.
    Check,
    /// That, and to extend it.
    Renewal,
}

impl Checks {
    /// Something happened that makes one worth while.
    pub(crate) fn want(&mut self, what: Wanted) {
        self.wanted = self.wanted.max(what);
    }

    /// When the next one may begin, if one is wanted.
    pub(crate) fn due(&self) -> Option<Time> {
        let next = self.under_way.map_or(self.next, |until| until.max(self.next));
        (self.wanted != Wanted::Nothing).then_some(next)
    }

    /// What was wanted, if that may begin at `now`: it is then taken as begun.
    pub(crate) fn begin(&mut self, now: Time) -> Option<Wanted> {
        self.due().filter(|due| now >= *due)?;
        let next = Self { next: now.after(CHECK_PAUSE), ..Self::default() };
        Some(std::mem::replace(self, next).wanted)
    }

    /// The nodes are asked, until `close_at` at the latest.
    pub(crate) fn handle_begun(&mut self, close_at: Time) {
        self.under_way = Some(close_at);
    }

    /// They have answered.
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
    fn checks_are_made_when_wanted_one_at_a_time_and_not_too_often() {
        let mut checks = Checks::default();
        assert_eq!((checks.due(), checks.begin(at(9))), (None, None), "nothing is wanted");
        checks.want(Wanted::Check);
        checks.want(Wanted::Renewal);
        checks.want(Wanted::Check);
        assert_eq!(checks.begin(at(1_000)), Some(Wanted::Renewal), "the most that was wanted");
        checks.handle_begun(at(1_500));
        assert_eq!(checks.due(), None);
        checks.want(Wanted::Check);
        assert_eq!(checks.due(), Some(at(1_500)), "one is under way");
        assert_eq!(checks.begin(at(1_499)), None);
        checks.handle_end();
        assert_eq!(checks.due(), Some(at(1_100)), "a tenth of a second apart");
        assert_eq!(checks.begin(at(1_100)), Some(Wanted::Check));
    }
}
