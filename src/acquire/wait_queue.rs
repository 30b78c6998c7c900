//! Who waits for which lock in this process, in order, and what wakes them.
//!
//! Those who wait for a key stand in one queue, and only the first competes on the nodes: what a release
//! costs does not grow with the number of waiters. A waiter is woken by a lease of this process that ends
//! (the turn passes as soon as the deletes are in the mailboxes; the nodes' order does the rest), by
//! the nodes when somebody else's key is gone, and always by a timer of its own.
//!
//! A future that is woken and not polled must hold up nobody for long, and must get the lock all the
//! same when it is polled every now and then. The rules for that are in
//! [`protocol`](crate::protocol::Waiting); here they are asked, every now and then, for all who wait.

use super::queue::{Queue, Ticket, Woken, tell};
use super::sets::Sets;
use super::waiter::{AttemptGuard, Waiter};
use crate::node::{Environment, PushSink};
use crate::protocol::{IdleAction, NodeId, Quorum, Time};
use crate::random::Random;
use crate::round::ReleaseListener;
use crate::sync::lock;
use crate::time::{Alarm, Clock, Ring};
use crate::wire::Key;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

/// How often those are looked for who do not move.
const SWEEP: Duration = Duration::from_millis(50);

/// So many queues are looked at in one go, and so long is the pause before the next: the same thread
/// tells leases that they end.
const SLICE: usize = 512;
const SLICE_PAUSE: Duration = Duration::from_millis(5);

/// The queues of one client.
pub(crate) struct WaitQueues {
    quorum: Quorum,
    clock: Clock,
    random: Random,
    queues: Mutex<Queues>,
    last_ticket: AtomicU64,
    this: Weak<Self>,
    /// How many waiters were looked at as something had gone that may have been in their way.
    #[cfg(feature = "test-util")]
    pub(super) looks: AtomicU64,
}

#[derive(Default)]
pub(super) struct Queues {
    pub(super) by_key: BTreeMap<Key, Queue>,
    /// Those who stand in no queue yet.
    roaming: BTreeMap<Ticket, Arc<Waiter>>,
    /// Those who want several locks together, and are told of each.
    pub(super) sets: Sets,
    alarm: Option<Alarm>,
    /// Where the sweep goes on.
    swept: Swept,
    /// True once the client is closed. Later releases then keep no queue and set no alarm.
    is_closed: bool,
}

/// How far a sweep has come.
#[derive(Clone, Default)]
enum Swept {
    #[default]
    Nothing,
    /// All that roam up to this one.
    Roaming(Ticket),
    /// All that roam, and the queues up to this one.
    Queued(Option<Key>),
}

impl WaitQueues {
    /// The attempt of `waiter` was refused.
    pub(super) fn handle_refusal(&self, waiter: &Waiter) {
        waiter.handle_refusal(self.quorum, self.random.number());
    }

    /// When it is worth while for `waiter` to try again, if it is.
    pub(super) fn next_useful_try(&self, all: &Queues, waiter: &Waiter) -> Option<Time> {
        #[cfg(feature = "test-util")]
        self.looks.fetch_add(1, Ordering::Relaxed);
        let freed = all.sets.free_for(waiter);
        waiter.next_useful_try(freed, self.quorum)
    }

    /// `node` has told `waiter` that others were faster.
    pub(super) fn handle_single_refusal(&self, waiter: &Waiter, node: NodeId) {
        waiter.handle_single_refusal(node, self.quorum, self.random.number());
    }

    pub(crate) fn new(quorum: Quorum, environment: &Environment) -> Arc<Self> {
        let Environment { clock, random, .. } = environment.clone();
        Arc::new_cyclic(|this| Self {
            quorum,
            clock,
            random,
            queues: Mutex::default(),
            last_ticket: AtomicU64::new(0),
            this: this.clone(),
            #[cfg(feature = "test-util")]
            looks: AtomicU64::new(0),
        })
    }

    /// Gives up all attempts under way, and lets everybody have a look, whoever stands before them.
    pub(crate) fn close(&self) {
        let mut given_up = Vec::new();
        let woken = {
            let mut all = self.queues();
            all.is_closed = true;
            let queues = std::mem::take(&mut all.by_key).into_values();
            let roaming = std::mem::take(&mut all.roaming).into_values();
            queues.flat_map(Queue::into_waiters).chain(roaming).collect::<Woken>()
        };
        for waiter in &woken {
            waiter.give_up(&mut given_up);
        }
        drop(given_up);
        wake(woken, &self.clock);
    }

    /// How many stand in all queues, or in none yet.
    #[cfg(feature = "test-util")]
    pub(crate) fn count(&self) -> usize {
        let queues = self.queues();
        queues.by_key.values().map(Queue::len).sum::<usize>() + queues.roaming.len()
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Puts a waiter into the queue of this key, or into none yet.
    /// Where `was_refused` says so, an attempt of it has just been: that its turn comes at once is no reason for another.
    pub(super) fn enter(
        &self,
        key: Option<&Key>,
        ticket: Ticket,
        waiter: &Arc<Waiter>,
        was_refused: bool,
    ) {
        let mut woken = Woken::new();
        let mut queues = self.queues();
        let now = self.clock.now();
        queues.insert(key, ticket, waiter.clone(), now, &mut woken);
        woken.retain(|one| !was_refused || !Arc::ptr_eq(one, waiter));
        self.sweep_soon(&mut queues);
        drop(queues);
        wake(woken, &self.clock);
    }

    /// Sets the alarm of the next sweep, if there is none.
    fn sweep_soon(&self, queues: &mut Queues) {
        // One that was set before a fork rings in the parent only.
        if queues.alarm.as_ref().is_none_or(|alarm| !alarm.is_ours()) {
            let bell: Weak<dyn Ring> = self.this.clone();
            queues.alarm = Some(self.clock.set_alarm(self.clock.now().after(SWEEP), bell));
        }
    }

    /// Takes it out again.
    pub(super) fn leave(&self, key: Option<&[u8]>, ticket: Ticket) {
        let mut woken = Woken::new();
        let now = self.clock.now();
        self.queues().remove(key, ticket, now, &mut woken);
        wake(woken, &self.clock);
    }

    /// A place behind all that were given before.
    pub(super) fn next_ticket(&self) -> Ticket {
        Ticket(self.last_ticket.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(super) fn queues(&self) -> MutexGuard<'_, Queues> {
        lock(&self.queues)
    }
}

impl Queues {
    /// Looks at some of the waiters for those that do not move, and sets them aside. Returns what
    /// their attempts may have won, the keys of which others may be told in their place, and whether the sweep has
    /// come to its end.
    fn sweep(&mut self, now: Time, woken: &mut Woken) -> (Vec<AttemptGuard>, Vec<Key>, bool) {
        let (seen, over, next) = self.slice(now);
        for key in over {
            self.by_key.remove(&key);
        }
        let is_whole = matches!(next, Swept::Nothing);
        self.swept = next;
        let (mut given_up, mut told) = (Vec::new(), Vec::new());
        for (ticket, queue, waiter) in seen {
            let is_due = match waiter.idle_action(now) {
                None => false,
                Some(IdleAction::Release) => true,
                // It is in nobody's way while nobody stands behind it.
                Some(IdleAction::Skip) => {
                    let queue = queue.as_ref().and_then(|key| self.by_key.get(key));
                    queue.is_some_and(|queue| queue.has_others(ticket))
                        || waiter.joined().is_some_and(|joined| self.sets.holds_up(joined))
                }
                Some(IdleAction::ReleaseIfWanted) => self.is_wanted(&waiter, ticket),
            };
            if is_due && waiter.suspend(now, &mut given_up) {
                if let Some(queue) = queue.as_ref().and_then(|key| self.by_key.get_mut(key)) {
                    queue.handle_skipped();
                }
                self.remove(queue.as_deref(), ticket, now, woken);
                told.extend(waiter.joined().map(|joined| self.sets.hand_on(joined)));
            }
        }
        (given_up, told.into_iter().flatten().collect(), is_whole)
    }

    /// The next of those whose turn it is, queues that are over, and how far the sweep has come with them.
    #[allow(clippy::type_complexity)] // It is two lists, and a mark.
    fn slice(&self, now: Time) -> (Vec<(Ticket, Option<Key>, Arc<Waiter>)>, Vec<Key>, Swept) {
        let (mut seen, mut over) = (Vec::new(), Vec::new());
        let from = match &self.swept {
            Swept::Nothing => Some(Unbounded),
            Swept::Roaming(ticket) => Some(Excluded(*ticket)),
            Swept::Queued(_) => None,
        };
        if let Some(from) = from {
            for (ticket, waiter) in self.roaming.range((from, Unbounded)).take(SLICE) {
                seen.push((*ticket, None, waiter.clone()));
            }
            if let Some((last, ..)) = seen.last().filter(|_| seen.len() == SLICE) {
                let last = *last;
                return (seen, over, Swept::Roaming(last));
            }
            let is_empty = self.by_key.is_empty();
            return (seen, over, if is_empty { Swept::Nothing } else { Swept::Queued(None) });
        }
        let queues = match &self.swept {
            Swept::Queued(Some(key)) => self.by_key.range::<[u8], _>((Excluded(&**key), Unbounded)),
            _ => self.by_key.range::<[u8], _>((Unbounded, Unbounded)),
        };
        let mut last = None;
        let mut count = 0;
        for (key, queue) in queues.take(SLICE) {
            over.extend(queue.is_over(now).then(|| key.clone()));
            let competing = queue.competing();
            seen.extend(competing.map(|(ticket, one)| (ticket, Some(key.clone()), one.clone())));
            last = Some(key);
            count += 1;
        }
        let next = last.filter(|_| count == SLICE);
        let next = next.map_or(Swept::Nothing, |key| Swept::Queued(Some(key.clone())));
        (seen, over, next)
    }

    /// True if somebody else of this process waits for any key of the attempt that `waiter`
    /// has under way.
    fn is_wanted(&self, waiter: &Waiter, ticket: Ticket) -> bool {
        waiter.claim().is_some_and(|claim| {
            claim.keys().iter().any(|key| {
                let queue = self.by_key.get(key);
                queue.is_some_and(|queue| queue.has_others(ticket))
                    || self.sets.is_watched(key, waiter.joined())
            })
        })
    }

    fn insert(
        &mut self,
        queue: Option<&Key>,
        ticket: Ticket,
        waiter: Arc<Waiter>,
        now: Time,
        woken: &mut Woken,
    ) {
        let Some(key) = queue else {
            waiter.roam();
            self.roaming.insert(ticket, waiter);
            return;
        };
        self.by_key.entry(key.clone()).or_default().insert(ticket, waiter, now, woken);
    }

    fn remove(&mut self, queue: Option<&[u8]>, ticket: Ticket, now: Time, woken: &mut Woken) {
        let Some(key) = queue else {
            self.roaming.remove(&ticket);
            return;
        };
        let Some(queue) = self.by_key.get_mut(key) else { return };
        queue.remove(ticket, woken);
        if queue.is_over(now) {
            self.by_key.remove(key);
        }
    }
}

/// Tells them to try at once.
fn wake(woken: Woken, clock: &Clock) {
    for waiter in woken {
        waiter.wake_for(clock.now());
    }
}

impl ReleaseListener for WaitQueues {
    fn handle_release(&self, key: &Key, at: Time, has_rivals: bool) {
        let mut all = self.queues();
        if has_rivals && !all.is_closed {
            all.by_key.entry(key.clone()).or_default().handle_rivals(self.clock.now());
            self.sweep_soon(&mut all);
        }
        all.sets.handle_release(key, at);
        let first = all.by_key.get_mut(key).and_then(|queue| queue.handle_release(at));
        let mut told: Vec<_> = first.into_iter().collect();
        told.extend(self.next_set(&mut all, key));
        drop(all);
        tell(told);
    }
}

impl Ring for WaitQueues {
    fn ring(self: Arc<Self>, now: Time) -> Option<Time> {
        let mut queues = self.queues();
        let mut woken = Woken::new();
        let (given_up, told, is_whole) = queues.sweep(now, &mut woken);
        let is_empty = queues.by_key.is_empty() && queues.roaming.is_empty();
        let alarm = if is_empty { queues.alarm.take() } else { None };
        let told = self.next_sets(&mut queues, told);
        drop(queues);
        // Releases are sent without the lock, and before the next are told.
        drop((given_up, alarm));
        wake(woken, &self.clock);
        tell(told);
        let pause = if is_whole { SWEEP } else { SLICE_PAUSE };
        (!is_empty).then(|| now.after(pause))
    }
}

impl PushSink for WaitQueues {
    fn handle_push(&self, node: NodeId, key: Option<&[u8]>) {
        let mut all = self.queues();
        let mut told = Vec::new();
        if let Some(key) = key {
            all.sets.handle_freed(node, key);
            let first = all.by_key.get(key).and_then(Queue::first).cloned();
            if let Some(first) = first {
                // What has gone of several keys is known by key.
                if first.joined().is_none() {
                    first.handle_freed(node);
                }
                if let Some(at) = self.next_useful_try(&all, &first) {
                    let now = self.clock.now();
                    if let Some(queue) = all.by_key.get_mut(key) {
                        queue.handle_freed_by_others(now);
                    }
                    told.push((first, at));
                }
            }
            told.extend(self.next_set(&mut all, key));
        } else {
            let firsts = all.by_key.values().filter_map(Queue::first);
            for waiter in firsts.chain(all.roaming.values()) {
                waiter.handle_freed(node);
                let at = self.next_useful_try(&all, waiter);
                told.extend(at.map(|at| (waiter.clone(), at)));
            }
        }
        drop(all);
        tell(told);
    }

    /// Whoever waits asks the nodes, which go by their own clocks.
    fn handle_step(&self, _: NodeId, _: Duration, _: Time) {}
}
