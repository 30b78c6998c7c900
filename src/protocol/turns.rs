//! Turns of the waiters for one key in this process, and when to let other processes go first.
//!
//! Only the first waiter of a queue competes on the nodes. When a lease of this process ends, the lock passes to the next
//! waiter in the queue. This is the fastest way, but unfair to other processes. So after several times in a row the first
//! waiter holds back for a moment.
//!
//! Events:
//!
//! - [`Turns::handle_release`] when a lease of this process ends; it returns when the first waiter may try.
//! - [`Turns::handle_freed_by_others`] when another process released the lock.

use super::validity::Time;
use std::time::Duration;

/// How often in a row a lock passes from lease to lease inside this process, at least. Then the first waiter holds back
/// for [`YIELD_DELAY`], so that other processes get a turn (they receive a push within a round trip). Short runs make
/// waiting fair: when a process gets its turn is random, and many turns even that out.
const SHORTEST_RUN: u32 = 4;
const YIELD_DELAY: Duration = Duration::from_millis(5);

/// Each time no other process takes the turn, the next run takes at least twice as long as this one did, up to
/// [`LONGEST_RUN`]. So yields take at most 2 % of a process's time that is alone, and another process gets its first turn
/// within `LONGEST_RUN` or [`SHORTEST_RUN`] leases.
const LONGEST_RUN: Duration = Duration::from_millis(250);

/// The turns for one key.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    in_a_row: u32,
    /// When the first lease of the current run ended.
    run_began: Time,
    /// The run lasts at least this long.
    shortest: Duration,
    /// How long the last run lasted, if other processes got a turn after it, until it is known whether they took it.
    yielded_after: Option<Duration>,
}

impl Turns {
    /// A lease of this process has ended, and the lock is free from `at` on. Returns when the first waiter
    /// may try.
    pub(crate) fn handle_release(&mut self, at: Time) -> Time {
        if let Some(lasted) = self.yielded_after.take() {
            // This process acquired the lock again, so no other process wanted it.
            self.shortest = LONGEST_RUN.min(lasted.max(YIELD_DELAY) * 2);
        }
        if self.in_a_row == 0 {
            self.run_began = at;
        }
        self.in_a_row += 1;
        let lasted = at.since(self.run_began);
        if self.in_a_row < SHORTEST_RUN || lasted < self.shortest {
            return at;
        }
        self.in_a_row = 0;
        self.yielded_after = Some(lasted);
        at.after(YIELD_DELAY)
    }

    /// Another process has released the lock. Nodes do not push the client's own releases.
    pub(crate) fn handle_freed_by_others(&mut self) {
        if self.yielded_after.take().is_some() {
            self.shortest = Duration::ZERO;
        }
        self.in_a_row = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Time {
        Time::default().after(Duration::from_millis(ms))
    }

    /// Releases every `hold` milliseconds from `from` on, until other processes get a turn. Returns their number.
    fn run(turns: &mut Turns, from: u64, hold: u64) -> u64 {
        (0..10_000)
            .find(|lease| turns.handle_release(at(from + lease * hold)) > at(from + lease * hold))
            .expect("others get a turn")
            + 1
    }

    #[test]
    fn others_get_turns_less_often_while_none_takes_them() {
        let mut turns = Turns::default();
        let runs = [(); 8].map(|()| run(&mut turns, 1_000, 1));
        assert_eq!(runs, [4, 11, 21, 41, 81, 161, 251, 251]);
        turns.handle_freed_by_others();
        assert_eq!(run(&mut turns, 1_000, 1), 4, "another process took it");
    }

    #[test]
    fn others_get_a_turn_after_four_long_leases() {
        let mut turns = Turns::default();
        assert_eq!([(); 5].map(|()| run(&mut turns, 0, 100)), [4; 5]);
    }

    #[test]
    fn turn_of_others_resets_the_count() {
        let mut turns = Turns::default();
        (1..4).for_each(|lease| assert_eq!(turns.handle_release(at(lease)), at(lease)));
        turns.handle_freed_by_others();
        assert_eq!(run(&mut turns, 10, 1), 4);
    }

    proptest! {
        #[test]
        fn others_get_no_turn_before_the_shortest_run(
            story in prop::collection::vec(prop::bool::ANY, 1..200),
        ) {
            let mut turns = Turns::default();
            let (mut run, at) = (0, Time::from_nanos(7));
            for is_release in story {
                run += 1;
                if !is_release {
                    turns.handle_freed_by_others();
                    run = 0;
                    continue;
                }
                let may_try = turns.handle_release(at);
                prop_assert!(may_try == at || may_try == at.after(YIELD_DELAY));
                if may_try > at {
                    prop_assert!(run >= SHORTEST_RUN, "after {run}");
                    run = 0;
                }
            }
        }
    }
}
