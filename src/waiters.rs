//! Who waits for which lock in this process, in order, and what wakes them.
//!
//! Waiters of a key stand in line, and only the first competes on the nodes: what a release costs
//! does not grow with the number of waiters. A waiter is woken by a lease of this process that ends
//! (the turn passes as soon as the deletes are in the mailboxes; the nodes' order does the rest), by
//! the nodes when somebody else's key is gone, and always by a timer of its own.

use crate::clock;
use crate::hold::{Heirs, Hold};
use crate::node::PushSink;
use crate::protocol::{NodeId, NodeSet, Quorum, Round, Time};
use crate::tally::Tally;
use crate::timer::{Alarm, Ring};
use rand::random_range;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// So often in a row a lock passes from lease to lease inside this process; then the first in line
/// holds back for [`MANNERS`], so that other processes get a turn (they know within a round trip).
/// Each time nobody took the turn, the number doubles, up to [`MOST_ALONE`]. Short runs are what
/// makes waiting fair: the time to a process's turn is a matter of luck, which many turns even out.
const MOST_IN_A_ROW: u32 = 4;
const MOST_ALONE: u32 = 1 << 8;
const MANNERS: Duration = Duration::from_millis(5);

/// Clients that are woken by the same push collide. Who was refused within this time before a push
/// waits for a random time up to it. It does not grow: who waited for long must not be the slowest.
const SPREAD: Duration = Duration::from_millis(3);

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

/// One acquire that may wait. It is the waker of its future: so it knows when that was woken and
/// not polled.
#[derive(Default)]
pub(crate) struct Waiter {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    task: Option<Waker>,
    /// Since when the future has something to do, if it was not polled since.
    woken_at: Option<Time>,
    is_first: bool,
    /// Set aside because its future was not polled.
    is_out: bool,
    /// Something happened: try again from then on.
    try_at: Option<Time>,
    /// Nodes that said that the key is gone, since the last attempt.
    freed: NodeSet,
    tally: Option<Arc<Tally>>,
    refused_at: Option<Time>,
    /// The attempt under way.
    hold: Option<Hold>,
}

/// A place in a line; given up when dropped.
pub(crate) struct Place {
    waiters: Arc<Waiters>,
    key: Box<[u8]>,
    pub(crate) waiter: Arc<Waiter>,
}

impl Waiters {
    pub(crate) fn new(quorum: Quorum, patience: Duration) -> Arc<Self> {
        Arc::new_cyclic(|this| {
            let (book, this) = (Mutex::default(), this.clone());
            Self { quorum, patience, book, this }
        })
    }

    /// A place at the end of the line for `key`.
    pub(crate) fn join(self: &Arc<Self>, key: &[u8]) -> Place {
        let place =
            Place { waiters: self.clone(), key: key.into(), waiter: Arc::new(Waiter::default()) };
        place.enter();
        place
    }

    /// Sets aside whoever was woken and did not move, with what its attempt may have won.
    fn sweep(&self, now: Time) {
        let mut dropped = Vec::new();
        let mut book = self.book();
        for line in book.lines.values_mut() {
            while let Some(first) = line.waiters.front() {
                let mut state = first.state();
                let is_stuck = state.woken_at.is_some_and(|at| now.since(at) >= self.patience);
                if !is_stuck {
                    break;
                }
                state.is_out = true;
                state.is_first = false;
                dropped.push(state.hold.take());
                drop(state);
                line.waiters.pop_front();
                line.promote();
            }
        }
        book.lines.retain(|_, line| !line.waiters.is_empty());
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
    fn handle_release(&self, key: &[u8]) {
        let mut book = self.book();
        let Some(line) = book.lines.get_mut(key) else { return };
        let now = clock::now();
        let at = if line.passes_on() { now } else { now.after(MANNERS) };
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
        if book.lines.is_empty() {
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
        if !book.lines.contains_key(&self.key) {
            book.lines.insert(self.key.clone(), Line::default());
        }
        let line = book.lines.get_mut(&self.key).expect("entered above");
        line.waiters.push_back(self.waiter.clone());
        line.promote();
        if book.alarm.is_none() {
            let bell: Weak<dyn Ring> = self.waiters.this.clone();
            book.alarm = Some(Alarm::set(clock::now().after(self.waiters.patience), bell));
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
        self.waiters.book().lines.get(&self.key)?.refused.clone()
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

    /// Notes that the attempt was refused.
    pub(crate) fn refuse(&self, tally: &Arc<Tally>) {
        self.waiter.state().refused_at = Some(clock::now());
        if let Some(line) = self.waiters.book().lines.get_mut(&self.key) {
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
        let mut book = self.waiters.book();
        let Some(line) = book.lines.get_mut(&self.key) else { return };
        line.waiters.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter));
        if line.waiters.is_empty() {
            book.lines.remove(&self.key);
        } else {
            line.promote();
        }
    }
}

impl Waiter {
    /// Polls the acquire that this waiter stands for.
    pub(crate) fn poll<F: Future + ?Sized>(
        self: &Arc<Self>,
        acquire: std::pin::Pin<&mut F>,
        task: &Waker,
    ) -> Poll<F::Output> {
        {
            let mut state = self.state();
            state.woken_at = None;
            if !state.task.as_ref().is_some_and(|known| known.will_wake(task)) {
                state.task = Some(task.clone());
            }
        }
        let waker = Waker::from(self.clone());
        acquire.poll(&mut Context::from_waker(&waker))
    }

    fn wake_for(self: &Arc<Self>, at: Time) {
        {
            let mut state = self.state();
            state.try_at = Some(state.try_at.map_or(at, |known| known.min(at)));
        }
        self.wake_by_ref();
    }

    /// A node says that the key is gone there. Once a quorum is free, as far as is known, another
    /// attempt is worth while: returns when.
    fn handle_push(&self, node: NodeId, quorum: Quorum) -> Option<Time> {
        let mut state = self.state();
        state.freed.insert(node);
        let granted = state.tally.as_ref().map(|tally| tally.judge(Round::granted));
        let free = granted.map_or(state.freed, |granted| granted.union(state.freed));
        if state.try_at.is_some() || !quorum.reached(free.len()) {
            return None;
        }
        let now = clock::now();
        let collided = state.refused_at.is_some_and(|at| now.since(at) < SPREAD);
        let delay = if collided { random_range(Duration::ZERO..=SPREAD) } else { Duration::ZERO };
        Some(now.after(delay))
    }

    /// No code panics while it holds this lock.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Waiter {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let task = {
            let mut state = self.state();
            state.woken_at.get_or_insert_with(clock::now);
            state.task.clone()
        };
        if let Some(task) = task {
            task.wake();
        }
    }
}
