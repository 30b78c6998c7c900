//! Who waits for which lock in this process, in order, and what wakes them.
//!
//! Waiters of a key stand in line, and only the first competes on the nodes: what a release costs
//! does not grow with the number of waiters. A waiter is woken by a lease of this process that ends
//! (the turn passes as soon as the deletes are in the mailboxes; the nodes' order does the rest), by
//! the nodes when somebody else's key is gone, and always by a timer of its own.
//!
//! A future that is woken and not polled must hold up nobody for long, and must get the lock all the
//! same when it is polled every now and then:
//! - One that holds nothing is bypassed by those behind it, and keeps its place.
//! - What an attempt has won is given up when its deadline or its validity is over; and while others
//!   of this process want it, after [`PATIENCE`](super::waiter::PATIENCE).

use super::queue::{Line, MANNERS, Ticket, Woken};
use super::waiter::{Neglect, Stake, State, Turn, Waiter};
use crate::node::PushSink;
use crate::protocol::{NodeId, NodeSet, Quorum, Time};
use crate::round::{Heirs, Tally};
use crate::sync::lock;
use crate::time::{Alarm, Ring, clock};
use crate::wire::Keys;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Poll;
use std::time::Duration;

/// How often those are looked for who do not move.
const SWEEP: Duration = Duration::from_millis(50);

/// So many lines are looked at in one go, and so long is the pause before the next: the same thread
/// tells leases that they end.
const SLICE: usize = 512;
const SLICE_PAUSE: Duration = Duration::from_millis(5);

/// The lines of one client.
pub(crate) struct Waiters {
    quorum: Quorum,
    book: Mutex<Book>,
    this: Weak<Self>,
}

#[derive(Default)]
struct Book {
    lines: BTreeMap<Box<[u8]>, Line>,
    /// Those who stand in no line yet.
    roaming: BTreeMap<Ticket, Arc<Waiter>>,
    last_ticket: u64,
    alarm: Option<Alarm>,
    /// Where the sweep goes on.
    swept: Swept,
}

/// How far a sweep has come.
#[derive(Clone, Default)]
enum Swept {
    #[default]
    Nothing,
    /// All that roam up to this one.
    Roaming(Ticket),
    /// All that roam, and the lines up to this one.
    Lines(Option<Box<[u8]>>),
}

/// A place in a line; given up when dropped. Who wants several locks stands in the line of the one
/// that it was refused for, and in none before that.
pub(crate) struct Place {
    waiters: Arc<Waiters>,
    line: Option<Box<[u8]>>,
    ticket: Ticket,
    pub(crate) waiter: Arc<Waiter>,
}

impl Waiters {
    pub(crate) fn new(quorum: Quorum) -> Arc<Self> {
        Arc::new_cyclic(|this| Self { quorum, book: Mutex::default(), this: this.clone() })
    }

    /// A place at the end of the line for these keys, for an acquire that ends by `deadline`.
    pub(crate) fn join(self: &Arc<Self>, keys: &Keys, deadline: Time) -> Place {
        let line = (keys.len() == 1).then(|| keys.first().into());
        let waiter = Arc::new(Waiter::new(deadline));
        let ticket = self.book().next_ticket();
        let place = Place { waiters: self.clone(), line, ticket, waiter };
        place.enter();
        place
    }

    /// Gives up all attempts under way, and lets everybody have a look, whoever stands before them.
    pub(crate) fn close(&self) {
        let mut given_up = Vec::new();
        let woken = {
            let mut book = self.book();
            let lines = std::mem::take(&mut book.lines).into_values();
            let roaming = std::mem::take(&mut book.roaming).into_values();
            lines.flat_map(Line::into_waiters).chain(roaming).collect::<Woken>()
        };
        for waiter in &woken {
            waiter.state().give_up(&mut given_up);
        }
        drop(given_up);
        wake(woken);
    }

    /// How many stand in all lines, or in none yet.
    #[cfg(feature = "test-util")]
    pub(crate) fn count(&self) -> usize {
        let book = self.book();
        book.lines.values().map(Line::len).sum::<usize>() + book.roaming.len()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }
}

impl Book {
    fn next_ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        Ticket(self.last_ticket)
    }

    /// Looks at some of the waiters for those that do not move, and sets them aside. Returns what
    /// their attempts may have won, and whether the sweep has come to its end.
    fn sweep(&mut self, now: Time, woken: &mut Woken) -> (Vec<Stake>, bool) {
        let (seen, next) = self.slice();
        let is_whole = matches!(next, Swept::Nothing);
        self.swept = next;
        let mut given_up = Vec::new();
        for (ticket, line, waiter) in seen {
            let is_due = match waiter.neglect(now) {
                None => false,
                Some(Neglect::GiveUp) => true,
                // It is in nobody's way while nobody stands behind it.
                Some(Neglect::Bypass) => {
                    let line = line.as_ref().and_then(|key| self.lines.get(key));
                    line.is_some_and(|line| line.has_others(ticket))
                }
                Some(Neglect::GiveUpIfWanted) => self.is_wanted(&waiter, ticket),
            };
            if is_due && waiter.set_aside(now, &mut given_up) {
                if let Some(line) = line.as_ref().and_then(|key| self.lines.get_mut(key)) {
                    line.note_bypassed();
                }
                self.remove(line.as_deref(), ticket, woken);
            }
        }
        (given_up, is_whole)
    }

    /// The next of those whose turn it is, and how far the sweep has come with them.
    #[allow(clippy::type_complexity)] // It is a list, and a mark.
    fn slice(&self) -> (Vec<(Ticket, Option<Box<[u8]>>, Arc<Waiter>)>, Swept) {
        let mut seen = Vec::new();
        let from = match &self.swept {
            Swept::Nothing => Some(Unbounded),
            Swept::Roaming(ticket) => Some(Excluded(*ticket)),
            Swept::Lines(_) => None,
        };
        if let Some(from) = from {
            for (ticket, waiter) in self.roaming.range((from, Unbounded)).take(SLICE) {
                seen.push((*ticket, None, waiter.clone()));
            }
            if let Some((last, ..)) = seen.last().filter(|_| seen.len() == SLICE) {
                let last = *last;
                return (seen, Swept::Roaming(last));
            }
            return (seen, if self.lines.is_empty() { Swept::Nothing } else { Swept::Lines(None) });
        }
        let lines = match &self.swept {
            Swept::Lines(Some(key)) => self.lines.range::<[u8], _>((Excluded(&**key), Unbounded)),
            _ => self.lines.range::<[u8], _>((Unbounded, Unbounded)),
        };
        let mut last = None;
        let mut count = 0;
        for (key, line) in lines.take(SLICE) {
            let competing = line.competing();
            seen.extend(competing.map(|(ticket, one)| (ticket, Some(key.clone()), one.clone())));
            last = Some(key);
            count += 1;
        }
        let next = last.filter(|_| count == SLICE);
        let next = next.map_or(Swept::Nothing, |key| Swept::Lines(Some(key.clone())));
        (seen, next)
    }

    /// True if somebody else of this process stands in line for any key of the attempt that `waiter`
    /// has under way.
    fn is_wanted(&self, waiter: &Waiter, ticket: Ticket) -> bool {
        let claim = waiter.state().stake.as_ref().map(|stake| stake.hold.claim().clone());
        claim.is_some_and(|claim| {
            let mut lines = claim.keys().iter().filter_map(|key| self.lines.get(key));
            lines.any(|line| line.has_others(ticket))
        })
    }

    fn insert(
        &mut self,
        line: Option<&[u8]>,
        ticket: Ticket,
        waiter: Arc<Waiter>,
        woken: &mut Woken,
    ) {
        let Some(key) = line else {
            waiter.state().turn = Turn::Mine;
            self.roaming.insert(ticket, waiter);
            return;
        };
        if !self.lines.contains_key(key) {
            self.lines.insert(key.into(), Line::default());
        }
        self.lines.get_mut(key).expect("entered above").insert(ticket, waiter, woken);
    }

    fn remove(&mut self, line: Option<&[u8]>, ticket: Ticket, woken: &mut Woken) {
        let Some(key) = line else {
            self.roaming.remove(&ticket);
            return;
        };
        let Some(line) = self.lines.get_mut(key) else { return };
        line.remove(ticket, woken);
        if line.len() == 0 {
            self.lines.remove(key);
        }
    }
}

/// Tells them to try at once.
fn wake(woken: Woken) {
    for waiter in woken {
        waiter.wake_for(clock::now());
    }
}

impl Heirs for Waiters {
    fn handle_release(&self, key: &[u8], at: Time) {
        let mut book = self.book();
        let Some(line) = book.lines.get_mut(key) else { return };
        let at = if line.passes_on() { at } else { at.after(MANNERS) };
        let first = line.first().cloned();
        drop(book);
        if let Some(first) = first {
            first.wake_for(at);
        }
    }
}

impl Ring for Waiters {
    fn ring(self: Arc<Self>, now: Time) -> Option<Time> {
        let mut book = self.book();
        let mut woken = Woken::new();
        let (given_up, is_whole) = book.sweep(now, &mut woken);
        let is_empty = book.lines.is_empty() && book.roaming.is_empty();
        let alarm = if is_empty { book.alarm.take() } else { None };
        drop(book);
        // Releases are sent without the lock, and before the next are told.
        drop((given_up, alarm));
        wake(woken);
        let pause = if is_whole { SWEEP } else { SLICE_PAUSE };
        (!is_empty).then(|| now.after(pause))
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
            if let Some(first) = line.first().cloned()
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
    fn handle_step(&self, _ahead: Duration) {}
}

impl Place {
    fn enter(&self) {
        let mut woken = Woken::new();
        let mut book = self.waiters.book();
        book.insert(self.line.as_deref(), self.ticket, self.waiter.clone(), &mut woken);
        // One that was set before a fork rings in the parent only.
        if book.alarm.as_ref().is_none_or(|alarm| !alarm.is_ours()) {
            let bell: Weak<dyn Ring> = self.waiters.this.clone();
            book.alarm = Some(Alarm::set(clock::now().after(SWEEP), bell));
        }
        drop(book);
        wake(woken);
    }

    fn leave(&self) {
        let mut woken = Woken::new();
        self.waiters.book().remove(self.line.as_deref(), self.ticket, &mut woken);
        wake(woken);
    }

    /// Resolves when it is this one's turn.
    pub(crate) async fn turn(&mut self) {
        std::future::poll_fn(|_| {
            let turn = self.waiter.state().turn;
            match turn {
                Turn::Mine => return Poll::Ready(()),
                Turn::Waiting => return Poll::Pending,
                // It had its turn, and has it still.
                Turn::Bypassed => self.waiter.state().turn = Turn::Mine,
                Turn::GivenUp => {
                    self.waiter.state().turn = Turn::Waiting;
                    self.ticket = self.waiters.book().next_ticket();
                }
            }
            self.enter();
            let is_mine = self.waiter.state().turn == Turn::Mine;
            if is_mine { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// What the first in line saw last, for one whose time ended before its turn.
    pub(crate) fn refused(&self) -> Option<Arc<Tally>> {
        self.waiters.book().lines.get(self.line.as_ref()?)?.refused.clone()
    }

    /// Notes an attempt that begins.
    pub(crate) fn begin(&self, stake: Stake, tally: Arc<Tally>) {
        let mut waiter = self.waiter.state();
        waiter.stake = Some(stake);
        waiter.tally = Some(tally);
        waiter.freed = NodeSet::default();
        waiter.try_at = None;
    }

    /// True while it may compete: it may have been set aside.
    pub(crate) fn is_mine(&self) -> bool {
        self.waiter.state().turn == Turn::Mine
    }

    /// What the attempt holds; `None` if it was given up because the future was not polled.
    pub(crate) fn end(&self) -> Option<Stake> {
        self.waiter.state().stake.take()
    }

    /// Notes that the attempt for `keys` was refused, and stands in the line of the one that was in
    /// the way.
    pub(crate) fn refuse(&mut self, tally: &Arc<Tally>, keys: &Keys) {
        let obstacle = tally.obstacle().and_then(|place| keys.get(place));
        if let Some(key) = obstacle.filter(|key| Some(*key) != self.line.as_deref()) {
            self.leave();
            self.line = Some(key.into());
            self.waiter.state().turn = Turn::Waiting;
            self.ticket = self.waiters.book().next_ticket();
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
        if matches!(state.turn, Turn::Bypassed | Turn::GivenUp) {
            return Poll::Ready(Time::default());
        }
        state.try_at.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The round under way knows this waiter as the one to wake, and may outlive it: its hold
        // must be given up now, and before the next in line asks.
        let State { stake, tally, task, .. } = std::mem::take(&mut *self.waiter.state());
        drop((stake, tally, task));
        self.leave();
    }
}
