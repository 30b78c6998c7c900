//! Owners of timeouts.

use super::slots::{AcquireId, RoundId};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timeout {
    /// The end of a round that belongs to no acquire.
    Round(RoundId),
    Acquire(AcquireId),
    Close,
}
