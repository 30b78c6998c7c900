//! Permits of a semaphore. Tasks use different numbers of permits for the same semaphore.

use crate::call::{End, Lock};
use crate::checker::CheckerState;
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

/// Turns `lock` into a permit of the semaphore.
pub(crate) fn draw(mut lock: Lock, dice: &mut Dice) -> Lock {
    let permits = 1 + dice.index(MOST);
    lock.resources = (FIRST..FIRST + permits).collect();
    lock.is_permit = true;
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

/// Returns the number of the lock with the key `key` if it is a permit.
pub(crate) fn lock_of(key: &str) -> Option<usize> {
    (FIRST..FIRST + MOST).find(|resource| name(*resource).as_deref() == Some(key))
}

impl Worker {
    pub(crate) fn semaphore(&self, lock: &Lock) -> Semaphore {
        self.redlock.semaphore(NAME, lock.resources.len()).expect("a valid number of permits")
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
    /// Checks that no more permits are valid than the largest number in use, counting a lease that
    /// begins now as valid.
    pub(crate) fn check_permits(&mut self) {
        let held = self.held.range(FIRST..FIRST + MOST).flat_map(|(_, held)| held);
        let valid = held.filter(|held| held.lease.is_valid()).count();
        if valid > MOST {
            self.violated(Rule::Permits, format!("{valid} of {MOST} permits are held"));
        }
    }
}
