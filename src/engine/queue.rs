//! A queue of requests for the coordinator. Callers add requests without waiting for the thread that uses the
//! coordinator.

use crate::protocol::Time;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, lock};

type Request<S> = Box<dyn FnOnce(&mut S, Time) + Send>;

pub(super) struct RequestQueue<S> {
    requests: Mutex<Vec<Request<S>>>,
    has_requests: AtomicBool,
}

impl<S> Default for RequestQueue<S> {
    fn default() -> Self {
        Self { requests: Mutex::default(), has_requests: AtomicBool::new(false) }
    }
}

impl<S> RequestQueue<S> {
    pub(super) fn push(&self, request: Request<S>) {
        let mut requests = lock(&self.requests);
        requests.push(request);
        self.has_requests.store(true, Ordering::SeqCst);
    }

    pub(super) fn take(&self) -> Vec<Request<S>> {
        if !self.has_requests() {
            return Vec::new();
        }
        let mut requests = lock(&self.requests);
        self.has_requests.store(false, Ordering::SeqCst);
        std::mem::take(&mut *requests)
    }

    pub(super) fn has_requests(&self) -> bool {
        self.has_requests.load(Ordering::SeqCst)
    }
}
