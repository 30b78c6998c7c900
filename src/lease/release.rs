//! [`ReleaseOutcome`]: whether a lease still held the lock at its release.

use std::fmt;

/// Outcome of a release: whether the lease still held the lock.
///
/// After [`Expired`](Self::Expired) or [`TakenOver`](Self::TakenOver), other clients may have held the lock during the
/// end of the work.
#[must_use = "the lease may have lost the lock before its release"]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// The release deleted the lock on a quorum of nodes, so the lease held the lock until then. If
    /// a lost connection made the client repeat the release of a valid lease, a key that is then
    /// missing or another client's counts as deleted by the first copy.
    Released,
    /// The lease had no quorum left, because the key was missing on too many nodes. The lock had
    /// expired or had been deleted, for example by a forced release. If other clients hold the lock
    /// on enough nodes, the outcome is [`TakenOver`](Self::TakenOver) instead.
    Expired,
    /// The lease had no quorum left, because other clients hold the lock on too many nodes. The
    /// release did not change their keys.
    TakenOver,
    /// Only this guard was released. The lock is still held, because the lease has more guards; see
    /// [`reenter`](crate::LeaseRef::reenter).
    StillHeld {
        /// Number of remaining guards.
        guards: usize,
    },
    /// The lock had already been released by [`release_all`](crate::Redlock::release_all) or
    /// [`close`](crate::Redlock::close).
    AlreadyReleased,
}

impl fmt::Display for ReleaseOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Released => f.write_str("released"),
            Self::Expired => f.write_str("expired or deleted before it was released"),
            Self::TakenOver => f.write_str("taken over before it was released"),
            Self::StillHeld { guards: 1 } => f.write_str("still held by 1 guard"),
            Self::StillHeld { guards } => write!(f, "still held by {guards} guards"),
            Self::AlreadyReleased => f.write_str("already released"),
        }
    }
}
