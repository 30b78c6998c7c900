//! Requests of callers, which do not wait for another thread that uses the coordinator.
//!
//! A request is executed at once if the coordinator is free. Otherwise it is queued, and the thread that uses the
//! coordinator executes it.

use super::shared::{Engine, State, Thread};
use crate::protocol::Time;
use crate::sync::try_lock;
use std::sync::atomic::{Ordering, fence};

impl Engine {
    /// Executes `request`, now or after the requests that were queued before. Drops it if the coordinator has panicked. The
    /// caller has checked that the engine belongs to this process.
    pub(super) fn request(&self, request: impl FnOnce(&mut State, Time) + Send + 'static) {
        if let Some(state) = try_lock(&self.state) {
            self.with_locked(state, Thread::Caller, request);
        } else {
            self.requests.push(Box::new(request));
        }
        self.execute_requests(Thread::Caller);
    }

    /// Executes the requests that were queued while the mutex was held. To be called after it was unlocked: if the mutex
    /// is held again, its holder makes this call.
    pub(super) fn execute_requests(&self, thread: Thread) {
        loop {
            // Orders the unlock, or the push, before the check.
            fence(Ordering::SeqCst);
            if !self.requests.has_requests() {
                return;
            }
            let Some(state) = try_lock(&self.state) else { return };
            self.with_locked(state, thread, |_, _| ());
        }
    }
}
