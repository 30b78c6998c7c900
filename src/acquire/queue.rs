//! A line of waiters, and how often in a row a lock passes from one of them to the next.

use super::waiter::{Turn, Waiter};
use crate::round::Tally;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// So often in a row a lock passes from lease to lease inside this process; then the first in line
/// holds back for [`YIELD_DELAY`], so that other processes get a turn (they know within a round trip).
/// Each time nobody took the turn, the number doubles, up to [`MAX_ALONE`]. Short runs are what
/// makes waiting fair: the time to a process's turn is a matter of luck, which many turns even out.
const MAX_IN_A_ROW: u32 = 4;
const MAX_ALONE: u32 = 1 << 8;
pub(crate) const YIELD_DELAY: Duration = Duration::from_millis(5);

/// So many of a line compete at most because those before them did not move.
const MAX_LET_IN: usize = 1 << 4;

/// When somebody joined, beside others: who was first is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(crate) u64);

/// Those who are to be woken once the lines are not locked any more: a waker is somebody else's code,
/// and may come back here.
pub(crate) type Woken = Vec<Arc<Waiter>>;

/// Those who wait for one key.
pub(crate) struct Queue {
    waiters: BTreeMap<Ticket, Arc<Waiter>>,
    in_a_row: u32,
    /// How many in a row before others get a turn.
    limit: u32,
    /// True since others were given a turn, until it is known whether they took it.
    has_yielded: bool,
    /// How many may compete. One, and twice as many with each that is bypassed: those who do not move
    /// stand together often, and must not cost whoever is behind them a pause each.
    let_in: usize,
    /// The last attempt of a first in line that was refused.
    pub(crate) refused: Option<Arc<Tally>>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            waiters: BTreeMap::new(),
            in_a_row: 0,
            limit: MAX_IN_A_ROW,
            has_yielded: false,
            let_in: 1,
            refused: None,
        }
    }
}

impl Queue {
    pub(crate) fn first(&self) -> Option<&Arc<Waiter>> {
        self.waiters.values().next()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(crate) fn into_waiters(self) -> impl Iterator<Item = Arc<Waiter>> {
        self.waiters.into_values()
    }

    /// Those whose turn it is: the first, and others that were let in before it.
    pub(crate) fn competing(&self) -> impl Iterator<Item = (Ticket, &Arc<Waiter>)> {
        let waiters = self.waiters.iter().map(|(ticket, waiter)| (*ticket, waiter));
        waiters.take_while(|(_, waiter)| waiter.state().turn == Turn::Mine)
    }

    /// True if somebody stands here besides the holder of `ticket`.
    pub(crate) fn has_others(&self, ticket: Ticket) -> bool {
        self.waiters.len() > usize::from(self.waiters.contains_key(&ticket))
    }

    /// Whoever gets its turn by that is added to `woken`, to be woken without the lock.
    pub(crate) fn insert(&mut self, ticket: Ticket, waiter: Arc<Waiter>, woken: &mut Woken) {
        self.waiters.insert(ticket, waiter);
        self.promote(woken);
    }

    /// As [`insert`](Self::insert).
    pub(crate) fn remove(&mut self, ticket: Ticket, woken: &mut Woken) {
        let was_first = self.waiters.first_key_value().is_some_and(|(first, _)| *first == ticket);
        self.waiters.remove(&ticket);
        // 1. The first is told that the lock is free, and does not move. 2. The next had been let in
        // before, and is told of nothing. 3. It is the first now.
        let first = self.first().filter(|first| was_first && first.state().turn == Turn::Mine);
        woken.extend(first.cloned());
        self.promote(woken);
    }

    /// Notes that one whose turn it was did not move.
    pub(crate) fn note_bypassed(&mut self) {
        self.let_in = (self.let_in * 2).min(MAX_LET_IN);
    }

    /// Gives the first in line their turn.
    fn promote(&self, woken: &mut Woken) {
        for waiter in self.waiters.values().take(self.let_in) {
            let mut state = waiter.state();
            if state.turn == Turn::Waiting {
                state.turn = Turn::Mine;
                woken.push(waiter.clone());
            }
        }
    }

    /// A lease of this process has ended: true if the next in line may have it at once, false if
    /// others are to be given a turn.
    pub(crate) fn passes_on(&mut self) -> bool {
        if std::mem::take(&mut self.has_yielded) {
            // It was ours again: nobody else wanted it.
            self.limit = (self.limit * 2).min(MAX_ALONE);
        }
        self.let_in = 1;
        self.in_a_row += 1;
        if self.in_a_row < self.limit {
            return true;
        }
        self.in_a_row = 0;
        self.has_yielded = true;
        false
    }

    /// Somebody else let go of the lock: nodes do not tell us of our own releases.
    pub(crate) fn handle_others(&mut self) {
        if std::mem::take(&mut self.has_yielded) {
            self.limit = MAX_IN_A_ROW;
        }
        self.let_in = 1;
        self.in_a_row = 0;
    }
}
