//! Who waits for which lock in this process, in order, and what wakes them.
//!
//! Waiters of a key stand in line, and only the first competes on the nodes: what a release costs
//! does not grow with the number of waiters. A waiter is woken by a lease of this process that ends
//! (the turn passes as soon as the deletes are in the mailboxes; the nodes' order does the rest), by
//! the nodes when somebody else's key is gone, and always by a timer of its own.

use crate::clock;
use crate::hold::{Heirs, Hold};
use crate::node::{Keys, PushSink};
use crate::protocol::{NodeId, NodeSet, Quorum, Time};
use crate::tally::Tally;
use crate::timer::{Alarm, Ring};
use crate::waiter::{State, Waiter};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

/// So often in a row a lock passes from lease to lease inside this process; then the first in line
/// holds back for [`MANNERS`], so that other processes get a turn (they know within a round trip).
/// Each time nobody took the turn, the number doubles, up to [`MOST_ALONE`]. Short runs are what
/// makes waiting fair: the time to a process's turn is a matter of luck, which many turns even out.
const MOST_IN_A_ROW: u32 = 4;
const MOST_ALONE: u32 = 1 << 8;
const MANNERS: Duration = Duration::from_millis(5);

/// The lines of one client.
pub(crate) struct Waiters {
    quorum: Quorum,
    /// How long a future that was woken may leave it at that: then others come first.
    patience: Duration,
    book: Mutex<Book>,
    this: Weak<Self>,
}

#[derive(Default)]
struct Book {
    lines: HashMap<Box<[u8]>, Line>,
    /// Those who stand in no line yet.
    roaming: Vec<Arc<Waiter>>,
    alarm: Option<Alarm>,
}

struct Line {
    waiters: VecDeque<Arc<Waiter>>,
    in_a_row: u32,
    /// How many in a row before others get a turn.
    limit: u32,
    /// True since others were given a turn, until it is known whether they took it.
    has_yielded: bool,
    /// The last attempt of a first in line that was refused.
    refused: Option<Arc<Tally>>,
}

/// A place in a line; given up when dropped. Who wants several locks stands in the line of the one
/// that it was refused for, and in none before that.
pub(crate) struct Place {
    waiters: Arc<Waiters>,
    line: Option<Box<[u8]>>,
    pub(crate) waiter: Arc<Waiter>,
}

impl Waiters {
    pub(crate) fn new(quorum: Quorum, patience: Duration) -> Arc<Self> {
        Arc::new_cyclic(|this| {
            let (book, this) = (Mutex::default(), this.clone());
            Self { quorum, patience, book, this }
        })
    }

    /// A place at the end of the line for these keys.
    pub(crate) fn join(self: &Arc<Self>, keys: &Keys) -> Place {
        let line = (keys.len() == 1).then(|| keys.first().into());
        let place = Place { waiters: self.clone(), line, waiter: Arc::default() };
        place.enter();
        place
    }

    /// Lets everybody in line have a look, one after the other.
    pub(crate) fn wake_all(&self) {
        let firsts = |line: &Line| line.waiters.front().cloned();
        let firsts: Vec<_> = self.book().lines.values().filter_map(firsts).collect();
        for first in firsts {
            first.wake_for(clock::now());
        }
    }

    /// How many stand in all lines, or in none yet.
    #[cfg(feature = "test-util")]
    pub(crate) fn count(&self) -> usize {
        let book = self.book();
        let in_line: usize = book.lines.values().map(|line| line.waiters.len()).sum();
        in_line + book.roaming.len()
    }

    /// Sets aside whoever was woken and did not move, with what its attempt may have won.
    fn sweep(&self, now: Time) {
        let mut dropped = Vec::new();
        let mut book = self.book();
        for line in book.lines.values_mut() {
            while let Some(first) = line.waiters.front()
                && first.is_stuck(now, self.patience)
            {
                dropped.push(first.set_aside());
                line.waiters.pop_front();
                line.promote();
            }
        }
        book.lines.retain(|_, line| !line.waiters.is_empty());
        for stuck in book.roaming.extract_if(.., |waiter| waiter.is_stuck(now, self.patience)) {
            dropped.push(stuck.set_aside());
        }
        drop(book);
        // Their releases are sent without the lock.
        drop(dropped);
    }

    /// No code panics while it holds this lock.
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Heirs for Waiters {
    fn handle_release(&self, key: &[u8], at: Time) {
        let mut book = self.book();
        let Some(line) = book.lines.get_mut(key) else { return };
        let at = if line.passes_on() { at } else { at.after(MANNERS) };
        let first = line.waiters.front().cloned();
        drop(book);
        if let Some(first) = first {
            first.wake_for(at);
        }
    }
}

impl Ring for Waiters {
    fn ring(self: Arc<Self>, now: Time) -> Option<Time> {
        self.sweep(now);
        let mut book = self.book();
        if book.lines.is_empty() && book.roaming.is_empty() {
            let alarm = book.alarm.take();
            drop(book);
            drop(alarm);
            return None;
        }
        Some(now.after(self.patience))
    }
}

impl PushSink for Waiters {
    fn handle_push(&self, node: NodeId, key: Option<&[u8]>) {
        let mut book = self.book();
        let lines: Vec<_> = match key {
            Some(key) => book.lines.get_mut(key).into_iter().collect(),
            None => book.lines.values_mut().collect(),
        };
        let mut told = Vec::new();
        for line in lines {
            if let Some(first) = line.waiters.front().cloned()
                && let Some(at) = first.handle_push(node, self.quorum)
            {
                if key.is_some() {
                    line.handle_others();
                }
                told.push((first, at));
            }
        }
        drop(book);
        for (first, at) in told {
            first.wake_for(at);
        }
    }

    /// Whoever waits asks the nodes, which go by their own clocks.
    fn handle_standstill(&self) {}
}

impl Default for Line {
    fn default() -> Self {
        let waiters = VecDeque::new();
        Self { waiters, in_a_row: 0, limit: MOST_IN_A_ROW, has_yielded: false, refused: None }
    }
}

impl Line {
    /// A lease of this process has ended: true if the next in line may have it at once, false if
    /// others are to be given a turn.
    fn passes_on(&mut self) -> bool {
        if std::mem::take(&mut self.has_yielded) {
            // It was ours again: nobody else wanted it.
            self.limit = (self.limit * 2).min(MOST_ALONE);
        }
        self.in_a_row += 1;
        if self.in_a_row < self.limit {
            return true;
        }
        self.in_a_row = 0;
        self.has_yielded = true;
        false
    }

    /// Somebody else let go of the lock: nodes do not tell us of our own releases.
    fn handle_others(&mut self) {
        if std::mem::take(&mut self.has_yielded) {
            self.limit = MOST_IN_A_ROW;
        }
        self.in_a_row = 0;
    }

    /// Gives the first in line its turn.
    fn promote(&self) {
        if let Some(first) = self.waiters.front() {
            let mut state = first.state();
            if !state.is_first {
                state.is_first = true;
                drop(state);
                first.wake_for(clock::now());
            }
        }
    }
}

impl Place {
    fn enter(&self) {
        let mut book = self.waiters.book();
        if let Some(key) = &self.line {
            if !book.lines.contains_key(key) {
                book.lines.insert(key.clone(), Line::default());
            }
            let line = book.lines.get_mut(key).expect("entered above");
            line.waiters.push_back(self.waiter.clone());
            line.promote();
        } else {
            self.waiter.state().is_first = true;
            book.roaming.push(self.waiter.clone());
        }
        if book.alarm.is_none() {
            let bell: Weak<dyn Ring> = self.waiters.this.clone();
            book.alarm = Some(Alarm::set(clock::now().after(self.waiters.patience), bell));
        }
    }

    fn leave(&self) {
        let is_other = |waiter: &Arc<Waiter>| !Arc::ptr_eq(waiter, &self.waiter);
        let mut book = self.waiters.book();
        let Some(key) = &self.line else {
            book.roaming.retain(is_other);
            return;
        };
        let Some(line) = book.lines.get_mut(key) else { return };
        line.waiters.retain(is_other);
        if line.waiters.is_empty() {
            book.lines.remove(key);
        } else {
            line.promote();
        }
    }

    /// Resolves when it is this one's turn.
    pub(crate) async fn turn(&self) {
        std::future::poll_fn(|_| {
            if std::mem::take(&mut self.waiter.state().is_out) {
                self.enter();
            }
            if self.waiter.state().is_first { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// What the first in line saw last, for one whose time ended before its turn.
    pub(crate) fn refused(&self) -> Option<Arc<Tally>> {
        self.waiters.book().lines.get(self.line.as_ref()?)?.refused.clone()
    }

    /// Notes an attempt that begins.
    pub(crate) fn begin(&self, hold: Hold, tally: Arc<Tally>) {
        let mut state = self.waiter.state();
        state.hold = Some(hold);
        state.tally = Some(tally);
        state.freed = NodeSet::default();
        state.try_at = None;
    }

    /// What the attempt holds; `None` if it was taken away because the future was not polled.
    pub(crate) fn end(&self) -> Option<Hold> {
        self.waiter.state().hold.take()
    }

    /// Notes that the attempt for `keys` was refused, and stands in the line of the one that was in
    /// the way.
    pub(crate) fn refuse(&mut self, tally: &Arc<Tally>, keys: &Keys) {
        let obstacle = tally.obstacle().and_then(|place| keys.get(place));
        if let Some(key) = obstacle.filter(|key| Some(*key) != self.line.as_deref()) {
            self.leave();
            self.line = Some(key.into());
            self.waiter.state().is_first = false;
            self.enter();
        }
        self.waiter.state().refused_at = Some(clock::now());
        let Some(key) = &self.line else { return };
        if let Some(line) = self.waiters.book().lines.get_mut(key) {
            line.refused = Some(tally.clone());
        }
    }

    /// When something happened that makes a new attempt worth while; pending until it does.
    pub(crate) fn poll_news(&self) -> Poll<Time> {
        let state = self.waiter.state();
        if state.is_out {
            return Poll::Ready(Time::default());
        }
        state.try_at.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The round under way knows this waiter as the one to wake, and may outlive it: its hold
        // must be given up now, and before the next in line asks.
        let State { hold, tally, task, .. } = std::mem::take(&mut *self.waiter.state());
        drop((hold, tally, task));
        self.leave();
    }
}
