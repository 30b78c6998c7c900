//! One acquire that waits.

use crate::protocol::{NodeId, NodeSet, Quorum, Round, Time};
use crate::round::{ReleaseGuard, Tally};
use crate::sync::{contain, lock};
use crate::time::clock;
use rand::random_range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// Clients that are woken by the same push collide. Who was refused within this time before a push
/// waits for a random time up to it. It does not grow: who waited for long must not be the slowest.
const SPREAD: Duration = Duration::from_millis(3);

/// The shortest of these waits: no push is a reason to ask again at once, and again.
const LEAST_SPREAD: Duration = Duration::from_millis(1);

/// A future that was woken may leave it at that for so long; then it is neglected, and whoever stands
/// behind it may go first. It costs nobody anything but a collision if it moves after all.
pub(crate) const BYPASS_AFTER: Duration = Duration::from_millis(100);

/// A neglected future keeps what its attempt has won for so long while others of this process want
/// it. A `select!` whose other arms take long polls its acquire every now and then: that must do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// One acquire that may wait. It is the waker of its future: so it knows when that was woken and
/// not polled.
pub(crate) struct Waiter {
    /// The end of all its waiting.
    deadline: Time,
    state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) task: Option<Waker>,
    /// Since when the future has something to do, if it was not polled since.
    pub(crate) woken_at: Option<Time>,
    pub(crate) turn: Turn,
    /// Something happened: try again from then on.
    pub(crate) try_at: Option<Time>,
    /// Nodes that said that the key is gone, since the last attempt.
    pub(crate) freed: NodeSet,
    pub(crate) tally: Option<Arc<Tally>>,
    pub(crate) refused_at: Option<Time>,
    /// What the attempt under way may hold.
    pub(crate) guard: Option<AttemptGuard>,
}

/// Whether it may compete on the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Others stand before it.
    #[default]
    Waiting,
    /// It may.
    Mine,
    /// Its turn had come, and it did not move: it stands in no line, and has its old place when it
    /// does.
    Bypassed,
    /// Its attempt was given up because it did not move. It stands in no line, and queues anew.
    GivenUp,
}

/// What an attempt under way may hold. Dropped in this order: a client that closes waits for the
/// permits, and then everything must have been given up.
pub(crate) struct AttemptGuard {
    pub(crate) release: ReleaseGuard,
    pub(crate) permit: OwnedSemaphorePermit,
    /// Until when winning it means anything.
    pub(crate) valid_until: Time,
}

/// What is to become of a waiter that does not move.
pub(crate) enum Neglect {
    /// It holds nothing: those behind it may go first.
    Bypass,
    /// What its attempt holds is of no use any more.
    GiveUp,
    /// What its attempt holds is to be given up if others of this process want it.
    GiveUpIfWanted,
}

impl Waiter {
    pub(crate) fn new(deadline: Time) -> Self {
        Self { deadline, state: Mutex::default() }
    }

    /// Polls the acquire that this waiter stands for.
    pub(crate) fn poll<F: Future + ?Sized>(
        self: &Arc<Self>,
        acquire: Pin<&mut F>,
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

    pub(crate) fn wake_for(self: &Arc<Self>, at: Time) {
        {
            let mut state = self.state();
            state.try_at = Some(state.try_at.map_or(at, |known| known.min(at)));
        }
        self.wake_by_ref();
    }

    /// What is to become of it at `now`, if its turn has come, it was woken, and has not moved since.
    pub(crate) fn neglect(&self, now: Time) -> Option<Neglect> {
        let state = self.state();
        let idle = state.idle(now).filter(|idle| *idle >= BYPASS_AFTER)?;
        let Some(held) = &state.guard else { return Some(Neglect::Bypass) };
        if now >= self.deadline || now >= held.valid_until {
            return Some(Neglect::GiveUp);
        }
        (idle >= PATIENCE).then_some(Neglect::GiveUpIfWanted)
    }

    /// Takes its turn away, and what its attempt holds, unless it has moved by `now`. False if it has.
    pub(crate) fn set_aside(&self, now: Time, given_up: &mut Vec<AttemptGuard>) -> bool {
        let mut state = self.state();
        let is_idle = state.idle(now).is_some_and(|idle| idle >= BYPASS_AFTER);
        if is_idle {
            state.give_up(given_up);
        }
        is_idle
    }

    /// A node says that the key is gone there. Once a quorum is free, as far as is known, another
    /// attempt is worth while: returns when.
    pub(crate) fn handle_push(&self, node: NodeId, quorum: Quorum) -> Option<Time> {
        let mut state = self.state();
        state.freed.insert(node);
        let granted = state.tally.as_ref().map(|tally| tally.with_round(Round::granted));
        let free = granted.map_or(state.freed, |granted| granted.union(state.freed));
        if state.try_at.is_some() || !quorum.reached(free.len()) {
            return None;
        }
        let now = clock::now();
        let collided = state.refused_at.is_some_and(|at| now.since(at) < SPREAD);
        let delay = if collided { random_range(LEAST_SPREAD..=SPREAD) } else { Duration::ZERO };
        Some(now.after(delay))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// For how long it has not moved though it could.
    fn idle(&self, now: Time) -> Option<Duration> {
        let woken_at = self.woken_at.filter(|_| self.turn == Turn::Mine)?;
        Some(now.since(woken_at))
    }

    /// Takes its turn away, and what its attempt holds.
    pub(crate) fn give_up(&mut self, given_up: &mut Vec<AttemptGuard>) {
        self.turn = if self.guard.is_some() { Turn::GivenUp } else { Turn::Bypassed };
        given_up.extend(self.guard.take());
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
            contain(|| task.wake());
        }
    }
}
