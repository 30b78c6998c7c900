//! Fairness between this process and other processes that wait for the same key.
//!
//! Only the first waiter of a queue competes on the nodes. When a lease of this process ends, the lock passes to the
//! next waiter in the queue. This is fast but unfair to other processes, so the first waiter pauses after several
//! handovers in a row.
//!
//! [`Turns::handle_release`] records the end of a lease of this process and returns when the first waiter may try to
//! acquire the lock. [`Turns::handle_freed_by_others`] records that another process released the lock, and
//! [`Turns::handle_one_freed_by_others`] that it released one of several locks.

use super::validity::Time;
use std::time::Duration;

/// The minimum number of consecutive leases of this process before the first waiter pauses for [`YIELD_DELAY`]. The
/// pause gives other processes a turn, because they receive a push within a round trip. Short runs make waiting fair:
/// the time of a process's turn is random, and many turns average out the differences.
const SHORTEST_RUN: u32 = 4;
const YIELD_DELAY: Duration = Duration::from_millis(5);

/// The longest time that a run must last before the first waiter pauses. Each time no other process uses a pause, the
/// next run must last at least twice as long as the last run, up to this limit. Pauses therefore take at most 2 % of
/// the time of a process without competitors. Another process gets its first turn within `LONGEST_RUN` or
/// [`SHORTEST_RUN`] leases, whichever takes longer.
const LONGEST_RUN: Duration = Duration::from_millis(250);

#[derive(Debug, Default)]
pub(crate) struct Turns {
    in_a_row: u32,
    /// When the first lease of the current run ended.
    run_began: Time,
    /// The minimum duration of the current run, after which the first waiter may pause.
    shortest: Duration,
    /// The duration of the run before the last pause. `None` once it is known whether another process used the pause.
    yielded_after: Option<Duration>,
    /// When the last pause of waiters for any one of several keys ends.
    yields_until: Time,
}

impl Turns {
    /// Records that a lease of this process has ended and that the lock is free from `at` onwards. Returns when the
    /// first waiter may try to acquire it.
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

    /// Records that a lease of this process on one of several keys has ended, any of which the waiters need. Used like
    /// [`handle_release`](Self::handle_release), but a lease that ends during a pause does not end the pause.
    pub(crate) fn handle_release_of_one(&mut self, at: Time) -> Time {
        if at < self.yields_until {
            return self.yields_until;
        }
        let from = self.handle_release(at);
        if from > at {
            self.yields_until = from;
        }
        from
    }

    /// Records that another process has released the lock. Nodes do not push a client's own releases to that client.
    pub(crate) fn handle_freed_by_others(&mut self) {
        self.handle_one_freed_by_others();
        self.in_a_row = 0;
    }

    /// Records that another process has released one of several keys, any of which the waiters need. The leases of this
    /// process on the other keys still count as a run.
    pub(crate) fn handle_one_freed_by_others(&mut self) {
        if self.yielded_after.take().is_some() {
            self.shortest = Duration::ZERO;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Time {
        Time::default().after(Duration::from_millis(ms))
    }

    /// Ends leases of `hold` milliseconds each, starting at `from`. Returns the number of leases until other processes
    /// get a turn.
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
    fn release_of_one_of_several_locks_continues_the_run() {
        let mut turns = Turns::default();
        (1..4).for_each(|lease| assert_eq!(turns.handle_release(at(lease)), at(lease)));
        turns.handle_one_freed_by_others();
        assert_eq!(run(&mut turns, 10, 1), 1);
        turns.handle_one_freed_by_others();
        assert_eq!(run(&mut turns, 20, 1), 4, "another process competes");
    }

    #[test]
    fn lease_that_ends_during_a_pause_does_not_end_the_pause() {
        let mut turns = Turns::default();
        let ends: Vec<_> = (1..=4).map(|lease| turns.handle_release_of_one(at(lease))).collect();
        assert_eq!(ends, [at(1), at(2), at(3), at(9)]);
        assert_eq!([5, 8].map(|lease| turns.handle_release_of_one(at(lease))), [at(9); 2]);
        turns.handle_one_freed_by_others();
        let ends: Vec<_> = (9..=12).map(|lease| turns.handle_release_of_one(at(lease))).collect();
        assert_eq!(ends, [at(9), at(10), at(11), at(17)], "another process used the pause");
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
