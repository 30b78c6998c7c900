//! The status of a semaphore: its holders and its free permits.

use super::status::Status;
use crate::observe::{HeldBy, Holder, debug_as_display};
use std::fmt;

/// The state of all permits of a [`Semaphore`](crate::Semaphore), as the nodes reported it at the time of the request.
///
/// `Display` and `Debug` write one line without lock values, for example
/// `2 of 3 permits held, 1 free: held by worker-7, held by worker-9`.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SemaphoreStatus {
    permits: usize,
    other_permits: Option<usize>,
    free: usize,
    holders: Vec<Holder>,
    #[cfg_attr(feature = "serde", serde(skip))]
    details: Vec<Status>,
}

impl SemaphoreStatus {
    /// `details` contains the state of each of the `permits`.
    pub(super) fn new(permits: usize, details: Vec<Status>) -> Self {
        let free = details.iter().filter(|permit| permit.acquirable_in().is_some()).count();
        let status =
            Self { permits, other_permits: None, free, holders: Vec::new(), details: Vec::new() };
        status.with_more(details)
    }

    /// Adds the state of permits that only clients with a larger number of permits use.
    pub(super) fn with_more(mut self, details: Vec<Status>) -> Self {
        self.holders.extend(details.iter().filter_map(Status::holder));
        self.details.extend(details);
        let numbers = self.details.iter().flat_map(Status::nodes).filter_map(|node| {
            let holder = node.holder()?;
            holder.permits().filter(|permits| *permits != self.permits)
        });
        self.other_permits = numbers.max();
        self
    }

    /// Returns the number of permits that this client uses.
    pub fn permits(&self) -> usize {
        self.permits
    }

    /// Returns the number of permits that another client uses, if a holder was found that uses a different number than
    /// this client. Returns the largest of several numbers. All clients must use the same number.
    pub fn other_permits(&self) -> Option<usize> {
        self.other_permits
    }

    /// Returns the number of permits that were free on a quorum of nodes, of those that this client uses.
    pub fn free(&self) -> usize {
        self.free
    }

    /// Returns the clients that hold a permit on a quorum of nodes, with their
    /// [metadata](crate::Acquire::metadata).
    pub fn holders(&self) -> &[Holder] {
        &self.holders
    }

    /// Returns the state of each permit on each node. Contains more entries than this client has permits if a holder
    /// uses a larger number.
    pub fn details(&self) -> &[Status] {
        &self.details
    }
}

impl fmt::Display for SemaphoreStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = self.details.iter().take(self.permits);
        let (permits, held) = (self.permits, own.filter(|permit| permit.is_held()).count());
        write!(f, "{held} of {permits} permits held, {} free", self.free)?;
        if let Some(other) = self.other_permits {
            write!(f, " (another client uses {other} permits: use the same number everywhere)")?;
        }
        for (place, holder) in self.holders.iter().enumerate() {
            write!(f, "{} {}", if place == 0 { ":" } else { "," }, HeldBy(holder))?;
        }
        Ok(())
    }
}

debug_as_display!(SemaphoreStatus);
