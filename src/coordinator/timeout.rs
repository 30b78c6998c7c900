//! Identifiers of the operations that have timeouts.

use super::slots::{AcquireId, RoundId};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timeout {
    /// The time limit of a round that belongs to no acquire: a round of an extension, a release, a status request or a
    /// forced release.
    Round(RoundId),
    Acquire(AcquireId),
    Close,
}
