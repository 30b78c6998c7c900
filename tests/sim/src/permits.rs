//! Permits of a semaphore. Tasks use different numbers of permits for the same semaphore.

use crate::call::{End, Lock};
use crate::checker::{CheckerState, HeldId};
use crate::dice::Dice;
use crate::process::millis;
use crate::rule::Rule;
use crate::worker::Worker;
use quorlock::{Acquire, Semaphore};

const NAME: &str = "s";

/// The number of the first permit's lock. Ordinary locks have lower numbers.
const FIRST: usize = 1_000;

/// The largest number of permits that a task uses.
const MOST: usize = 3;

/// An upper limit of the numbers of permits, which a defect of the library could acquire.
const HIGHEST: usize = 100;

/// Turns `lock` into a permit of the semaphore.
pub(crate) fn draw(mut lock: Lock, dice: &mut Dice) -> Lock {
    let permits = 1 + dice.index(MOST);
    lock.resources = (FIRST..FIRST + permits).collect();
    lock.permits = Some(permits);
    lock.any = permits > 1;
    // A permit cannot be adopted.
    if matches!(lock.end, End::HandOver { .. }) {
        lock.end = End::Release;
    }
    lock
}

/// Returns the name of the lock `resource` if it is a permit.
pub(crate) fn name(resource: usize) -> Option<String> {
    let permit = resource.checked_sub(FIRST)?;
    Some(format!("{NAME}#quorlock:permit{permit}:{{{NAME}}}"))
}

/// Returns the number of the lock with the key `key` if it is a permit, whether or not tasks use a
/// permit of this number.
pub(crate) fn lock_of(key: &str) -> Option<usize> {
    let digits = key.strip_prefix(NAME)?.strip_prefix("#quorlock:permit")?.split(':').next()?;
    let resource = FIRST + digits.parse::<usize>().ok()?;
    (name(resource).as_deref() == Some(key)).then_some(resource)
}

impl Worker {
    pub(crate) fn semaphore(&self, lock: &Lock) -> Semaphore {
        self.redlock
            .semaphore(NAME, lock.permits.unwrap_or_default())
            .expect("a valid number of permits")
    }

    pub(crate) fn acquire_permit(&self, lock: &Lock) -> Acquire {
        let semaphore = self.semaphore(lock);
        match lock.wait {
            Some(wait) => semaphore.acquire().wait(millis(wait)),
            None => semaphore.try_acquire(),
        }
    }
}

impl CheckerState {
    /// Checks that the valid leases of the semaphore are no more than the largest number of permits
    /// that their holders use. Lease `id` begins now and counts as valid.
    pub(crate) fn check_permits(&mut self, id: HeldId) {
        let held = self.held.range(FIRST..FIRST + HIGHEST).flat_map(|(_, held)| held);
        let valid = held.filter(|held| held.id == id || held.lease.is_valid());
        let permits: Vec<_> = valid.filter_map(|held| held.permits).collect();
        let (valid, most) = (permits.len(), permits.iter().copied().max().unwrap_or_default());
        if valid < most {
            return;
        }
        self.check(Rule::Permits, valid == most, || {
            format!("{valid} clients hold a permit, but they use at most {most} permits")
        });
    }
}
