//! Wake-ups of the client's task.

use crate::protocol::Time;
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::{Mutex, catch_panic, lock};
use std::task::Waker;

#[derive(Default)]
pub(super) struct TaskSignal {
    waker: Mutex<Option<Waker>>,
    /// When the task was woken, in nanoseconds. 0 if the task has run since.
    woken_at: AtomicU64,
    /// The number of tasks that have ended or were replaced, which identifies the current task. Changes only while the
    /// engine's state is locked.
    generation: AtomicU64,
}

impl TaskSignal {
    /// Registers the `waker` of the running task, and records that the task has run. Returns false if the task of
    /// `generation` was replaced.
    pub(super) fn register(&self, generation: u64, waker: &Waker) -> bool {
        let mut known = lock(&self.waker);
        // A task that replaces this task registers its waker later.
        if !self.is_current(generation) {
            return false;
        }
        let mut replaced = None;
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            replaced = known.replace(waker.clone());
        }
        drop(known);
        drop(replaced);
        self.woken_at.store(0, Ordering::SeqCst);
        // Orders the store before the check of the queue.
        fence(Ordering::SeqCst);
        true
    }

    pub(super) fn waker(&self) -> Option<Waker> {
        lock(&self.waker).clone()
    }

    pub(super) fn woken_at(&self) -> Option<Time> {
        let woken_at = self.woken_at.load(Ordering::SeqCst);
        (woken_at > 0).then(|| Time::from_nanos(woken_at))
    }

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
            catch_panic(|| waker.wake());
        }
    }

    pub(super) fn handle_start(&self, now: Time) -> u64 {
        self.woken_at.store(now.as_nanos().max(1), Ordering::SeqCst);
        self.generation.load(Ordering::SeqCst)
    }

    /// Records that the current task has ended or is replaced, and returns its waker. The caller must wake a replaced
    /// task, which then ends.
    pub(super) fn handle_end(&self) -> Option<Waker> {
        self.generation.fetch_add(1, Ordering::SeqCst);
        lock(&self.waker).take()
    }

    pub(super) fn is_current(&self, generation: u64) -> bool {
        self.generation.load(Ordering::SeqCst) == generation
    }
}
