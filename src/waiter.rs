//! One acquire that waits.

use crate::clock;
use crate::hold::Hold;
use crate::protocol::{NodeId, NodeSet, Quorum, Round, Time};
use crate::tally::Tally;
use rand::random_range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Clients that are woken by the same push collide. Who was refused within this time before a push
/// waits for a random time up to it. It does not grow: who waited for long must not be the slowest.
const SPREAD: Duration = Duration::from_millis(3);

/// One acquire that may wait. It is the waker of its future: so it knows when that was woken and
/// not polled.
#[derive(Default)]
pub(crate) struct Waiter {
    state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) task: Option<Waker>,
    /// Since when the future has something to do, if it was not polled since.
    pub(crate) woken_at: Option<Time>,
    pub(crate) is_first: bool,
    /// Set aside because its future was not polled.
    pub(crate) is_out: bool,
    /// Something happened: try again from then on.
    pub(crate) try_at: Option<Time>,
    /// Nodes that said that the key is gone, since the last attempt.
    pub(crate) freed: NodeSet,
    pub(crate) tally: Option<Arc<Tally>>,
    pub(crate) refused_at: Option<Time>,
    /// The attempt under way.
    pub(crate) hold: Option<Hold>,
}

impl Waiter {
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

    /// True if it was woken and did not move for so long.
    pub(crate) fn is_stuck(&self, now: Time, patience: Duration) -> bool {
        self.state().woken_at.is_some_and(|at| now.since(at) >= patience)
    }

    /// Takes its turn away, and what its attempt holds.
    pub(crate) fn set_aside(&self) -> Option<Hold> {
        let mut state = self.state();
        state.is_out = true;
        state.is_first = false;
        state.hold.take()
    }

    /// A node says that the key is gone there. Once a quorum is free, as far as is known, another
    /// attempt is worth while: returns when.
    pub(crate) fn handle_push(&self, node: NodeId, quorum: Quorum) -> Option<Time> {
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
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
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
