//! The operations to which rounds belong.

use super::slots::{AcquireId, LeaseId, RoundId};
use crate::protocol::Time;

#[derive(Clone, Copy, Debug)]
pub(super) enum Owner {
    Acquire(AcquireId),
    /// The acquire round of this lease. Some nodes may still reply.
    Lease(LeaseId),
    /// An extension of `lease`. Nodes that grant the extension keep the keys until `until`.
    Extension {
        lease: LeaseId,
        cause: Cause,
        until: Time,
    },
    Release,
    Status,
    /// A request for the counter of a scheduled job.
    Period,
    ForcedRelease,
    /// The second round of the forced release `call`, which deletes the values that the first round has read.
    Deletion {
        call: RoundId,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Requested,
    Renewal,
    /// Checks that the lease is still held, after a key has changed or a node's clock has stepped.
    Check,
}
