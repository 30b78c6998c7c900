//! Requests of callers, which do not wait for another thread that uses the coordinator.
//!
//! A request is executed at once if the coordinator is free. Otherwise it is queued, and the thread that uses the
//! coordinator executes it.

use super::shared::{Engine, State};
use crate::protocol::Time;
use crate::sync::{lock, try_lock};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering, fence};

type Request = Box<dyn FnOnce(&mut State, Time) + Send>;

#[derive(Default)]
pub(super) struct RequestQueue {
    requests: Mutex<Vec<Request>>,
    has_requests: AtomicBool,
}

impl RequestQueue {
    fn push(&self, request: Request) {
        let mut requests = lock(&self.requests);
        requests.push(request);
        self.has_requests.store(true, Ordering::SeqCst);
    }

    /// Takes all requests, oldest first.
    pub(super) fn take(&self) -> Vec<Request> {
        if !self.has_requests() {
            return Vec::new();
        }
        let mut requests = lock(&self.requests);
        self.has_requests.store(false, Ordering::SeqCst);
        std::mem::take(&mut *requests)
    }

    fn has_requests(&self) -> bool {
        self.has_requests.load(Ordering::SeqCst)
    }
}

impl Engine {
    /// Executes `request`, now or after the requests that were queued before. Drops it if the coordinator has panicked. The
    /// caller has checked that the engine belongs to this process.
    pub(super) fn request(&self, request: impl FnOnce(&mut State, Time) + Send + 'static) {
        if let Some(state) = try_lock(&self.state) {
            self.with_locked(state, false, request);
        } else {
            self.requests.push(Box::new(request));
        }
        self.execute_requests();
    }

    /// Executes the requests that were queued while the mutex was held. To be called after it was unlocked: if the mutex
    /// is held again, its holder makes this call.
    pub(super) fn execute_requests(&self) {
        loop {
            // Orders the unlock, or the push, before the check.
            fence(Ordering::SeqCst);
            if !self.requests.has_requests() {
                return;
            }
            let Some(state) = try_lock(&self.state) else { return };
            self.with_locked(state, false, |_, _| ());
        }
    }
}
