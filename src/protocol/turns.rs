//! Turns of the waiters for one key in this process, and when to let other processes go first.
//!
//! Only the first waiter of a queue competes on the nodes. When a lease of this process
//! ends, the lock passes to the next waiter in the queue. This is the fastest way, but unfair to other
//! processes. So after several times in a row the first waiter holds back for a moment.
//!
//! - Events: [`Turns::handle_release`] when a lease of this process ends; it returns when the first waiter may try.
//!   [`Turns::handle_freed_by_others`] when another process released the lock.
//!   [`Turns::handle_skipped`] when a waiter that may compete was not polled.
//! - Query: [`Turns::admitted`] is how many waiters may compete.

use super::validity::Time;
use std::time::Duration;

/// How often in a row a lock passes from lease to lease inside this process. Then the first waiter
/// holds back for [`YIELD_DELAY`], so that other processes get a turn (they are notified within a round trip).
/// Each time no other process takes the turn, the number doubles, up to [`MAX_LIMIT`]. Short runs make
/// waiting fair: when a process gets its turn is random, and many turns even that out.
const INITIAL_LIMIT: u32 = 4;
const MAX_LIMIT: u32 = 1 << 8;
const YIELD_DELAY: Duration = Duration::from_millis(5);

/// Maximum number of waiters that compete because those before them were not polled.
const MAX_ADMITTED: usize = 1 << 4;

/// The turns for one key.
#[derive(Debug)]
pub(crate) struct Turns {
    in_a_row: u32,
    /// How many in a row before other processes get a turn.
    limit: u32,
    /// True after a turn was given to others, until it is known whether they took it.
    has_yielded: bool,
    /// How many waiters may compete: one, doubled with each that is skipped. Unpolled waiters are often next to
    /// each other, and should not cost the waiters behind them one pause each.
    admitted: usize,
}

impl Default for Turns {
    fn default() -> Self {
        Self { in_a_row: 0, limit: INITIAL_LIMIT, has_yielded: false, admitted: 1 }
    }
}

impl Turns {
    /// How many waiters may compete on the nodes.
    pub(crate) fn admitted(&self) -> usize {
        self.admitted
    }

    /// A lease of this process has ended, and the lock is free from `at` on. Returns when the first waiter
    /// may try.
    pub(crate) fn handle_release(&mut self, at: Time) -> Time {
        if std::mem::take(&mut self.has_yielded) {
            // This process acquired the lock again, so no other process wanted it.
            self.limit = (self.limit * 2).min(MAX_LIMIT);
        }
        self.admitted = 1;
        self.in_a_row += 1;
        if self.in_a_row < self.limit {
            return at;
        }
        self.in_a_row = 0;
        self.has_yielded = true;
        at.after(YIELD_DELAY)
    }

    /// Another process has released the lock. Nodes do not push the client's own releases.
    pub(crate) fn handle_freed_by_others(&mut self) {
        if std::mem::take(&mut self.has_yielded) {
            self.limit = INITIAL_LIMIT;
        }
        self.admitted = 1;
        self.in_a_row = 0;
    }

    /// A waiter that may compete was not polled.
    pub(crate) fn handle_skipped(&mut self) {
        self.admitted = (self.admitted * 2).min(MAX_ADMITTED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn releases(turns: &mut Turns, most: u32) -> u32 {
        let at = Time::from_nanos(1);
        (1..=most).find(|_| turns.handle_release(at) > at).unwrap_or(0)
    }

    #[test]
    fn others_get_turns_less_often_while_none_takes_them() {
        let mut turns = Turns::default();
        for run in [4, 8, 16, 32, 64, 128, 256, 256] {
            assert_eq!(releases(&mut turns, 1_000), run);
        }
        turns.handle_freed_by_others();
        assert_eq!(releases(&mut turns, 1_000), 4, "another process took it");
    }

    #[test]
    fn turn_of_others_resets_the_count() {
        let mut turns = Turns::default();
        assert_eq!(releases(&mut turns, 3), 0);
        turns.handle_freed_by_others();
        assert_eq!(releases(&mut turns, 3), 0, "three of four");
        assert_eq!(releases(&mut turns, 1), 1);
    }

    #[derive(Clone, Copy, Debug)]
    enum TurnEvent {
        Release,
        Others,
        Skipped,
    }

    proptest! {
        #[test]
        fn admitted_resets_when_free_and_stays_bounded(
            story in prop::collection::vec(
                prop::sample::select(&[TurnEvent::Release, TurnEvent::Others, TurnEvent::Skipped][..]), 1..200,
            ),
        ) {
            let mut turns = Turns::default();
            let (mut skipped, mut run) = (0, 0);
            let at = Time::from_nanos(7);
            for event in story {
                match event {
                    TurnEvent::Release => {
                        run += 1;
                        skipped = 0;
                        let may_try = turns.handle_release(at);
                        prop_assert!(may_try == at || may_try == at.after(YIELD_DELAY));
                        prop_assert!(run < MAX_LIMIT || may_try > at, "others never get a turn");
                        if may_try > at {
                            prop_assert!(run >= INITIAL_LIMIT, "after {run}");
                            run = 0;
                        }
                    }
                    TurnEvent::Others => {
                        (skipped, run) = (0, 0);
                        turns.handle_freed_by_others();
                    }
                    TurnEvent::Skipped => {
                        skipped += 1;
                        turns.handle_skipped();
                    }
                }
                prop_assert_eq!(turns.admitted(), (1_usize << skipped.min(4)).min(MAX_ADMITTED));
            }
        }
    }
}
