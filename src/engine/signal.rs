//! Wake-ups of the client's task.

use crate::protocol::Time;
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::{Mutex, contain, lock};
use std::task::Waker;

#[derive(Default)]
pub(super) struct TaskSignal {
    waker: Mutex<Option<Waker>>,
    /// When the task was woken, if it has not run since, in nanoseconds; 0 otherwise.
    woken_at: AtomicU64,
    /// Number of tasks that have ended or were replaced, which identifies the current one. Changes with the mutex of the
    /// engine held.
    generation: AtomicU64,
}

impl TaskSignal {
    /// The task of `generation` runs, and is woken by `waker` from now on. Returns false if it was replaced.
    pub(super) fn register(&self, generation: u64, waker: &Waker) -> bool {
        let mut known = lock(&self.waker);
        // A task that replaces this one registers its waker after this one.
        if !self.is_current(generation) {
            return false;
        }
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
        drop(known);
        self.woken_at.store(0, Ordering::SeqCst);
        // Orders the store before the check of the queue.
        fence(Ordering::SeqCst);
        true
    }

    pub(super) fn waker(&self) -> Option<Waker> {
        lock(&self.waker).clone()
    }

    /// When the task was woken, if it has not run since.
    pub(super) fn woken_at(&self) -> Option<Time> {
        let woken_at = self.woken_at.load(Ordering::SeqCst);
        (woken_at > 0).then(|| Time::from_nanos(woken_at))
    }

    /// True if the task was woken and has not run since.
    pub(super) fn is_woken(&self) -> bool {
        self.woken_at.load(Ordering::SeqCst) > 0
    }

    pub(super) fn wake(&self, now: Time) {
        let woken_at = now.as_nanos().max(1);
        let order = Ordering::SeqCst;
        if self.woken_at.compare_exchange(0, woken_at, order, order).is_err() {
            return;
        }
        if let Some(waker) = self.waker() {
            contain(|| waker.wake());
        }
    }

    /// A task starts at `now`. Returns its generation.
    pub(super) fn handle_start(&self, now: Time) -> u64 {
        self.woken_at.store(now.as_nanos().max(1), Ordering::SeqCst);
        self.generation.load(Ordering::SeqCst)
    }

    /// The current task has ended or is replaced. Returns its waker: a task that was replaced ends when it runs.
    pub(super) fn handle_end(&self) -> Option<Waker> {
        self.generation.fetch_add(1, Ordering::SeqCst);
        lock(&self.waker).take()
    }

    /// True if the task of `generation` has not ended and was not replaced.
    pub(super) fn is_current(&self, generation: u64) -> bool {
        self.generation.load(Ordering::SeqCst) == generation
    }
}
