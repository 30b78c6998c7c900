//! Owners of timeouts.

use super::slots::{AcquireId, LeaseId, RoundId};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timeout {
    /// The next renewal, check or end of a lease.
    Lease(LeaseId),
    /// The end of a round that belongs to no acquire.
    Round(RoundId),
    Acquire(AcquireId),
    /// The time limit of a close.
    Close,
}
