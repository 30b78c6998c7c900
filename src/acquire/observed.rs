//! Events of an acquire that waits.

use super::driver::Driver;
use super::request::AcquireRequest;
use crate::observe::Weight;
use crate::observe::event::{Event, LockInfo};
use crate::protocol::Time;

/// Emits [`Event::WaitStarted`] once, and then [`Event::WaitFinished`] when it is dropped.
pub(super) struct WaitWatch<'a> {
    driver: &'a Driver,
    request: &'a AcquireRequest,
    /// Start of the wait. `None` if there was no wait, or if it is not observed.
    started: Option<Time>,
}

impl<'a> WaitWatch<'a> {
    pub(super) fn new(driver: &'a Driver, request: &'a AcquireRequest) -> Self {
        Self { driver, request, started: None }
    }

    fn lock(&self) -> LockInfo {
        self.request.tag.lock(&self.request.keys, self.request.prefix)
    }

    pub(super) fn start(&mut self) {
        let observers = self.driver.observers();
        if self.started.is_none() && observers.wants(Weight::Detail) {
            self.started = Some(self.driver.now());
            observers.emit(Weight::Detail, || Event::WaitStarted { lock: self.lock() });
        }
    }
}

impl Drop for WaitWatch<'_> {
    fn drop(&mut self) {
        let Some(started) = self.started.take() else { return };
        self.driver.observers().emit(Weight::Detail, || Event::WaitFinished {
            lock: self.lock(),
            elapsed: self.driver.now().since(started),
        });
    }
}
