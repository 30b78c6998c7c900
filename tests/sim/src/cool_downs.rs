//! Minimum hold times. They last after an early release.

use crate::call::Lock;
use crate::checker::{CheckerState, HeldId};
use crate::clock::{Instant, MS};
use crate::process::nanos;
use crate::rule::Rule;
use crate::worker::Worker;
use quorlock::LeaseRef;
use std::collections::BTreeMap;

/// The minimum hold times of all leases, by resource.
#[derive(Default)]
pub(crate) struct CoolDowns(BTreeMap<usize, Vec<CoolDown>>);

struct CoolDown {
    id: HeldId,
    is_reader: bool,
    /// A lower limit of the true time at which the minimum hold time ends.
    until: Instant,
}

impl Worker {
    /// Returns a lower limit of the true time until which `lock.at_least` keeps the lock. Returns
    /// `None` if the lock has no minimum hold time, or if `lease` has ended. `begun` is the time of
    /// the call if the lease may have been renewed since its acquire. Clocks differ by at most 1 %.
    pub(crate) fn kept_until(
        &self,
        lease: &LeaseRef,
        lock: &Lock,
        begun: Option<Instant>,
    ) -> Option<Instant> {
        let at_least = lock.at_least? * MS;
        let (now, validity) = (self.now(), nanos(lease.validity()));
        if validity == 0 {
            return None;
        }
        let ttl = at_least.max(lock.ttl.unwrap_or(self.times.ttl_ms) * MS);
        // The drift allowance is not added, so the attempt began later.
        let age = ttl.saturating_sub(validity) / 50 * 51 + 2 * MS;
        let attempted = match begun {
            // A renewal takes place after a third of the validity.
            Some(begun) if now - begun > ttl / 4 => begun,
            _ => now.saturating_sub(age),
        };
        Some(attempted + (at_least / 50 * 49).saturating_sub(5 * MS))
    }
}

impl CheckerState {
    /// Checks that no minimum hold time of another lease of `resource` lasts at `now`, when lease
    /// `id` begins. Readers do not exclude each other.
    pub(crate) fn check_cool_downs(
        &mut self,
        resource: usize,
        (id, is_reader): (HeldId, bool),
        now: Instant,
    ) {
        let all = self.cool_downs.0.get(&resource).into_iter().flatten();
        let mut others = all.filter(|it| !(is_reader && it.is_reader)).peekable();
        let is_met = others.peek().is_some();
        let mut lasting = others.filter(|it| it.until > now);
        self.counts.add(Rule::CoolDowns, u64::from(is_met));
        if let Some(CoolDown { id: HeldId(one), until, .. }) = lasting.next() {
            let how = format!(
                "r{resource}: lease {} begins {} ms before the minimum hold time of lease {one} ends",
                id.0,
                (until - now) / MS
            );
            self.violated(Rule::CoolDowns, how);
        }
    }
}

impl CoolDowns {
    pub(crate) fn add(&mut self, resource: usize, id: HeldId, is_reader: bool, until: Instant) {
        self.0.entry(resource).or_default().push(CoolDown { id, is_reader, until });
    }

    /// Records that the writer `id` has become a reader.
    pub(crate) fn handle_downgrade(&mut self, id: HeldId) {
        let all = self.0.values_mut().flatten().filter(|it| it.id == id);
        all.for_each(|it| it.is_reader = true);
    }
}
