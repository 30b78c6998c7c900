//! The operations that have timeouts.

use super::slots::{AcquireId, RoundId};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timeout {
    /// Closes the round of an extension, a release, a status request or a forced release. Acquires close their own
    /// rounds.
    Round(RoundId),
    Acquire(AcquireId),
    Close,
}
