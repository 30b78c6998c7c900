//! When the nodes are asked whether a lease is still held: not more often than they can bear.

use crate::protocol::Time;
use std::time::Duration;

/// The least time between two checks: others can touch a key thousands of times a second.
const CHECK_PAUSE: Duration = Duration::from_millis(100);

/// When the nodes are asked whether it is still held.
#[derive(Default)]
pub(crate) struct Checks {
    /// Not before then again.
    next: Time,
    /// One is under way, until then at the latest.
    pub(crate) under_way: Option<Time>,
    /// True if something happened since.
    pub(crate) is_wanted: bool,
    /// True if it is also to be extended then.
    pub(crate) renews: bool,
}

impl Checks {
    /// When the next one may begin, if one is wanted.
    pub(crate) fn due(&self) -> Option<Time> {
        let next = self.under_way.map_or(self.next, |until| until.max(self.next));
        self.is_wanted.then_some(next)
    }

    /// What was wanted, if that may begin at `now`: it is then taken as begun.
    pub(crate) fn begin(&mut self, now: Time) -> Option<Self> {
        self.due().filter(|due| now >= *due)?;
        let next = Self { next: now.after(CHECK_PAUSE), ..Self::default() };
        Some(std::mem::replace(self, next))
    }
}
