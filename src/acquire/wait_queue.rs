//! Who waits for which lock in this process, in order, and what wakes them.
//!
//! WaitQueues of a key stand in line, and only the first competes on the nodes: what a release costs
//! does not grow with the number of waiters. A waiter is woken by a lease of this process that ends
//! (the turn passes as soon as the deletes are in the mailboxes; the nodes' order does the rest), by
//! the nodes when somebody else's key is gone, and always by a timer of its own.
//!
//! A future that is woken and not polled must hold up nobody for long, and must get the lock all the
//! same when it is polled every now and then:
//! - One that holds nothing is bypassed by those behind it, and keeps its place.
//! - What an attempt has won is given up when its deadline or its validity is over; and while others
//!   of this process want it, after [`PATIENCE`](super::waiter::PATIENCE).

use super::queue::{Queue, Ticket, Woken, YIELD_DELAY};
use super::waiter::{AttemptGuard, Neglect, State, Turn, Waiter};
use crate::node::PushSink;
use crate::protocol::{NodeId, NodeSet, Quorum, Time};
use crate::round::{ReleaseListener, Tally};
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
pub(crate) struct WaitQueues {
    quorum: Quorum,
    queues: Mutex<Queues>,
    this: Weak<Self>,
}

#[derive(Default)]
struct Queues {
    by_key: BTreeMap<Box<[u8]>, Queue>,
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
pub(crate) struct QueueSlot {
    waiters: Arc<WaitQueues>,
    queue: Option<Box<[u8]>>,
    ticket: Ticket,
    pub(crate) waiter: Arc<Waiter>,
}

impl WaitQueues {
    pub(crate) fn new(quorum: Quorum) -> Arc<Self> {
        Arc::new_cyclic(|this| Self { quorum, queues: Mutex::default(), this: this.clone() })
    }

    /// A place at the end of the line for these keys, for an acquire that ends by `deadline`.
    pub(crate) fn join(self: &Arc<Self>, keys: &Keys, deadline: Time) -> QueueSlot {
        let queue = (keys.len() == 1).then(|| keys.first().into());
        let waiter = Arc::new(Waiter::new(deadline));
        let ticket = self.queues().next_ticket();
        let index = QueueSlot { waiters: self.clone(), queue, ticket, waiter };
        index.enter();
        index
    }

    /// Gives up all attempts under way, and lets everybody have a look, whoever stands before them.
    pub(crate) fn close(&self) {
        let mut given_up = Vec::new();
        let woken = {
            let mut all = self.queues();
            let queues = std::mem::take(&mut all.by_key).into_values();
            let roaming = std::mem::take(&mut all.roaming).into_values();
            queues.flat_map(Queue::into_waiters).chain(roaming).collect::<Woken>()
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
        let queues = self.queues();
        queues.by_key.values().map(Queue::len).sum::<usize>() + queues.roaming.len()
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        lock(&self.queues)
    }
}

impl Queues {
    fn next_ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        Ticket(self.last_ticket)
    }

    /// Looks at some of the waiters for those that do not move, and sets them aside. Returns what
    /// their attempts may have won, and whether the sweep has come to its end.
    fn sweep(&mut self, now: Time, woken: &mut Woken) -> (Vec<AttemptGuard>, bool) {
        let (seen, next) = self.slice();
        let is_whole = matches!(next, Swept::Nothing);
        self.swept = next;
        let mut given_up = Vec::new();
        for (ticket, queue, waiter) in seen {
            let is_due = match waiter.neglect(now) {
                None => false,
                Some(Neglect::GiveUp) => true,
                // It is in nobody's way while nobody stands behind it.
                Some(Neglect::Bypass) => {
                    let queue = queue.as_ref().and_then(|key| self.by_key.get(key));
                    queue.is_some_and(|queue| queue.has_others(ticket))
                }
                Some(Neglect::GiveUpIfWanted) => self.is_wanted(&waiter, ticket),
            };
            if is_due && waiter.set_aside(now, &mut given_up) {
                if let Some(queue) = queue.as_ref().and_then(|key| self.by_key.get_mut(key)) {
                    queue.note_bypassed();
                }
                self.remove(queue.as_deref(), ticket, woken);
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
            return (
                seen,
                if self.by_key.is_empty() { Swept::Nothing } else { Swept::Lines(None) },
            );
        }
        let queues = match &self.swept {
            Swept::Lines(Some(key)) => self.by_key.range::<[u8], _>((Excluded(&**key), Unbounded)),
            _ => self.by_key.range::<[u8], _>((Unbounded, Unbounded)),
        };
        let mut last = None;
        let mut count = 0;
        for (key, queue) in queues.take(SLICE) {
            let competing = queue.competing();
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
        let claim = waiter.state().guard.as_ref().map(|guard| guard.release.claim().clone());
        claim.is_some_and(|claim| {
            let mut queues = claim.keys().iter().filter_map(|key| self.by_key.get(key));
            queues.any(|queue| queue.has_others(ticket))
        })
    }

    fn insert(
        &mut self,
        queue: Option<&[u8]>,
        ticket: Ticket,
        waiter: Arc<Waiter>,
        woken: &mut Woken,
    ) {
        let Some(key) = queue else {
            waiter.state().turn = Turn::Mine;
            self.roaming.insert(ticket, waiter);
            return;
        };
        if !self.by_key.contains_key(key) {
            self.by_key.insert(key.into(), Queue::default());
        }
        self.by_key.get_mut(key).expect("entered above").insert(ticket, waiter, woken);
    }

    fn remove(&mut self, queue: Option<&[u8]>, ticket: Ticket, woken: &mut Woken) {
        let Some(key) = queue else {
            self.roaming.remove(&ticket);
            return;
        };
        let Some(queue) = self.by_key.get_mut(key) else { return };
        queue.remove(ticket, woken);
        if queue.len() == 0 {
            self.by_key.remove(key);
        }
    }
}

/// Tells them to try at once.
fn wake(woken: Woken) {
    for waiter in woken {
        waiter.wake_for(clock::now());
    }
}

impl ReleaseListener for WaitQueues {
    fn handle_release(&self, key: &[u8], at: Time) {
        let mut queues = self.queues();
        let Some(queue) = queues.by_key.get_mut(key) else { return };
        let at = if queue.passes_on() { at } else { at.after(YIELD_DELAY) };
        let first = queue.first().cloned();
        drop(queues);
        if let Some(first) = first {
            first.wake_for(at);
        }
    }
}

impl Ring for WaitQueues {
    fn ring(self: Arc<Self>, now: Time) -> Option<Time> {
        let mut queues = self.queues();
        let mut woken = Woken::new();
        let (given_up, is_whole) = queues.sweep(now, &mut woken);
        let is_empty = queues.by_key.is_empty() && queues.roaming.is_empty();
        let alarm = if is_empty { queues.alarm.take() } else { None };
        drop(queues);
        // Releases are sent without the lock, and before the next are told.
        drop((given_up, alarm));
        wake(woken);
        let pause = if is_whole { SWEEP } else { SLICE_PAUSE };
        (!is_empty).then(|| now.after(pause))
    }
}

impl PushSink for WaitQueues {
    fn handle_push(&self, node: NodeId, key: Option<&[u8]>) {
        let mut all = self.queues();
        let queues: Vec<_> = match key {
            Some(key) => all.by_key.get_mut(key).into_iter().collect(),
            None => all.by_key.values_mut().collect(),
        };
        let mut told = Vec::new();
        for queue in queues {
            if let Some(first) = queue.first().cloned()
                && let Some(at) = first.handle_push(node, self.quorum)
            {
                if key.is_some() {
                    queue.handle_others();
                }
                told.push((first, at));
            }
        }
        drop(all);
        for (first, at) in told {
            first.wake_for(at);
        }
    }

    /// Whoever waits asks the nodes, which go by their own clocks.
    fn handle_step(&self, _ahead: Duration) {}
}

impl QueueSlot {
    fn enter(&self) {
        let mut woken = Woken::new();
        let mut queues = self.waiters.queues();
        queues.insert(self.queue.as_deref(), self.ticket, self.waiter.clone(), &mut woken);
        // One that was set before a fork rings in the parent only.
        if queues.alarm.as_ref().is_none_or(|alarm| !alarm.is_ours()) {
            let bell: Weak<dyn Ring> = self.waiters.this.clone();
            queues.alarm = Some(Alarm::set(clock::now().after(SWEEP), bell));
        }
        drop(queues);
        wake(woken);
    }

    fn leave(&self) {
        let mut woken = Woken::new();
        self.waiters.queues().remove(self.queue.as_deref(), self.ticket, &mut woken);
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
                    self.ticket = self.waiters.queues().next_ticket();
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
        self.waiters.queues().by_key.get(self.queue.as_ref()?)?.refused.clone()
    }

    /// Notes an attempt that begins.
    pub(crate) fn begin(&self, guard: AttemptGuard, tally: Arc<Tally>) {
        let mut waiter = self.waiter.state();
        waiter.guard = Some(guard);
        waiter.tally = Some(tally);
        waiter.freed = NodeSet::default();
        waiter.try_at = None;
    }

    /// True while it may compete: it may have been set aside.
    pub(crate) fn is_mine(&self) -> bool {
        self.waiter.state().turn == Turn::Mine
    }

    /// What the attempt holds; `None` if it was given up because the future was not polled.
    pub(crate) fn end(&self) -> Option<AttemptGuard> {
        self.waiter.state().guard.take()
    }

    /// Notes that the attempt for `keys` was refused, and stands in the line of the one that was in
    /// the way.
    pub(crate) fn refuse(&mut self, tally: &Arc<Tally>, keys: &Keys) {
        let obstacle = tally.obstacle().and_then(|index| keys.get(index));
        if let Some(key) = obstacle.filter(|key| Some(*key) != self.queue.as_deref()) {
            self.leave();
            self.queue = Some(key.into());
            self.waiter.state().turn = Turn::Waiting;
            self.ticket = self.waiters.queues().next_ticket();
            self.enter();
        }
        self.waiter.state().refused_at = Some(clock::now());
        let Some(key) = &self.queue else { return };
        if let Some(queue) = self.waiters.queues().by_key.get_mut(key) {
            queue.refused = Some(tally.clone());
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

impl Drop for QueueSlot {
    fn drop(&mut self) {
        // The round under way knows this waiter as the one to wake, and may outlive it: its hold
        // must be given up now, and before the next in line asks.
        let State { guard, tally, task, .. } = std::mem::take(&mut *self.waiter.state());
        drop((guard, tally, task));
        self.leave();
    }
}
