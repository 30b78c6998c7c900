//! What is told of an acquire that has to wait.

use super::driver::Driver;
use super::request::AcquireRequest;
use crate::observe::{Lock, WaitBegun, WaitEnded, Weight};
use crate::protocol::Time;

/// Tells once that an acquire has to wait, and then that it waits no more, also if it is dropped.
pub(super) struct WaitWatch<'a> {
    driver: &'a Driver,
    request: &'a AcquireRequest,
    /// `None` while it has not waited, or if nobody is to be told.
    begun: Option<Time>,
}

impl<'a> WaitWatch<'a> {
    pub(super) fn new(driver: &'a Driver, request: &'a AcquireRequest) -> Self {
        Self { driver, request, begun: None }
    }

    fn lock(&self) -> Lock<'a> {
        self.request.tag.lock(&self.request.keys, self.request.prefix)
    }

    /// It has to wait.
    pub(super) fn begin(&mut self) {
        let observers = self.driver.observers();
        if self.begun.is_none() && observers.wants(Weight::Detail) {
            self.begun = Some(self.driver.now());
            observers.tell(Weight::Detail, &WaitBegun { lock: self.lock() });
        }
    }
}

impl Drop for WaitWatch<'_> {
    fn drop(&mut self) {
        let Some(begun) = self.begun.take() else { return };
        let waited = self.driver.now().since(begun);
        self.driver.observers().tell(Weight::Detail, &WaitEnded { lock: self.lock(), waited });
    }
}
