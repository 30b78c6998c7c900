//! Which request to the nodes a lease's validity stands on.

use super::extension::Extension;
use crate::protocol::{Drift, Extended, Goal, Round, Time, Ttl};
use crate::sync::lock;
use std::sync::Mutex;
use std::time::Duration;

/// When the nodes were asked to keep the keys for as long as the lease is valid, and for which ttl.
pub(super) struct Kept(Mutex<(Time, Ttl)>);

impl Kept {
    pub(super) fn new(t1: Time, ttl: Ttl) -> Self {
        Self(Mutex::new((t1, ttl)))
    }

    /// So `extension` has ended. It is what counts from then on, unless another one has given the lease more.
    pub(super) fn note(&self, extension: &Extension, extended: Extended) {
        let goal = extension.tally.with_round(Round::goal);
        if let (Goal::Extend { proposed, .. }, Extended::Until(until)) = (goal, extended)
            && proposed == until
        {
            let t1 = extension.tally.t1();
            *lock(&self.0) = (t1, Ttl::covering(extension.until.since(t1)));
        }
    }

    /// True if the keys may end before the lease does, where clocks have stepped ahead by so much `since` then.
    pub(super) fn may_end_early(&self, drift: Drift, since: impl FnOnce(Time) -> Duration) -> bool {
        let (t1, ttl) = *lock(&self.0);
        since(t1) > drift.allowance(ttl)
    }
}
