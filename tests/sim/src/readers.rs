//! Readers and writers of a lock, some of which become readers. Other tasks use the same lock as an
//! ordinary one.

use crate::call::{End, HeldStep, Lock};
use crate::dice::Dice;
use crate::process::millis;
use crate::worker::Worker;
use quorlock::Acquire;

const NAME: &str = "shared";

/// The number of the lock, between the numbers of ordinary locks and of permits.
pub(crate) const LOCK: usize = 900;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Ordinary,
    Read,
    Write,
}

/// Turns `lock` into a use of the lock that has readers.
pub(crate) fn draw(mut lock: Lock, dice: &mut Dice) -> Lock {
    (lock.resources, lock.any) = (vec![LOCK], false);
    lock.access = match dice.below(10) {
        0..=5 => Access::Read,
        6..=8 => Access::Write,
        _ => Access::Ordinary,
    };
    // Readers cannot be adopted.
    if matches!(lock.end, End::HandOver { .. }) {
        lock.end = End::Release;
    }
    let mut reads = lock.access == Access::Read;
    for step in &mut lock.steps {
        match *step {
            HeldStep::Update { lasting } if reads => *step = HeldStep::Work { lasting },
            HeldStep::Work { .. } if lock.access == Access::Write && dice.chance(500) => {
                (*step, reads) = (HeldStep::Downgrade, true);
            }
            _ => {}
        }
    }
    lock
}

/// Returns the name of `resource` if it is the lock that has readers.
pub(crate) fn name(resource: usize) -> Option<String> {
    (resource == LOCK).then(|| NAME.to_owned())
}

/// Returns the number of the lock with the key `key` if it is the lock that has readers.
pub(crate) fn lock_of(key: &str) -> Option<usize> {
    (key == NAME).then_some(LOCK)
}

impl Worker {
    pub(crate) fn acquire_shared(&self, lock: &Lock) -> Acquire {
        let shared = self.redlock.rw_lock(NAME).expect("a valid name");
        let (acquire, once) = match lock.access {
            Access::Read => (shared.read(), shared.try_read()),
            Access::Write => (shared.write(), shared.try_write()),
            Access::Ordinary => (self.redlock.acquire(NAME), self.redlock.try_acquire(NAME)),
        };
        lock.wait.map_or(once, |wait| acquire.wait(millis(wait)))
    }
}
