//! Outcomes of acquires, attempts, extensions and releases.

use std::fmt;

/// Implements `as_str` and `Display`, and lists the variants with their labels for metrics.
macro_rules! labels {
    ($name:ident { $($variant:ident: $label:literal),* $(,)? }) => {
        impl $name {
            #[cfg(feature = "metrics")]
            pub(in crate::observe) const LABELS: &[(Self, &'static str)] =
                &[$((Self::$variant, $label)),*];

            /// Returns the name of the variant in snake case, which is also its `Display` output and its metric label.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $label,)*
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(super) use labels;

/// Outcome of an attempt to acquire a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// The attempt acquired the lock.
    Won,
    /// The attempt did not acquire the lock.
    Refused,
    /// The client abandoned the attempt because the client was closed, or because the runtime of its connections ended.
    /// If the runtime ended, the acquire starts a new attempt.
    Abandoned,
}

/// Outcome of an acquire. Every variant except `Won` and `Dropped` corresponds to a kind of
/// [`AcquireError`](crate::AcquireError).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AcquireOutcome {
    /// The lock was acquired.
    Won,
    /// Other leases hold the lock on enough nodes to prevent a quorum.
    Contended,
    /// The adoption failed because no quorum of nodes stores the given value.
    NotHeld,
    /// Too few nodes replied to reach a quorum.
    NoQuorum,
    /// A quorum granted the lock, but only after its validity had expired.
    Expired,
    /// The wait time elapsed before an attempt completed.
    Timeout,
    /// An attempt acquired the lock, but the future was not polled for 2 s, or until the validity expired, so the client
    /// released the lock.
    NotPolled,
    /// This client was too busy to contact a quorum of nodes in time.
    Overloaded,
    /// The client is closed.
    Closed,
    /// The client has an internal error; see [`AcquireError::Internal`](crate::AcquireError::Internal).
    Internal,
    /// The client's runtime was shut down or lacks a driver, or the library's own runtime could not be started.
    NoRuntime,
    /// The future was dropped before the acquire completed.
    Dropped,
}

labels!(AcquireOutcome {
    Won: "won",
    Contended: "contended",
    NotHeld: "not_held",
    NoQuorum: "no_quorum",
    Expired: "expired",
    Timeout: "timeout",
    NotPolled: "not_polled",
    Overloaded: "overloaded",
    Closed: "closed",
    Internal: "internal",
    NoRuntime: "no_runtime",
    Dropped: "dropped",
});

/// Outcome of an extension that the holder requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExtendOutcome {
    /// A quorum of nodes confirmed the extension in time. An extension never shortens the validity.
    Extended,
    /// Too few nodes confirmed the extension in time. The validity is unchanged.
    NoQuorum,
    /// The extension failed because the lease has ended.
    Ended,
    /// The future was dropped before the outcome was known. The validity is unchanged.
    Dropped,
}

labels!(ExtendOutcome {
    Extended: "extended",
    NoQuorum: "no_quorum",
    Ended: "ended",
    Dropped: "dropped",
});

/// Result of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseResult {
    /// The lease held the lock until the release.
    Released,
    /// The lock had expired or was deleted before the release.
    Expired,
    /// Another client had acquired the lock before the release.
    TakenOver,
    /// Too few nodes confirmed the release within the node timeout. The release continues in the background until each
    /// node has confirmed it, or until the lock expires.
    NoQuorum,
    /// The lease or its release future was dropped, so no caller waits for the result. The release continues in the
    /// background.
    InBackground,
}

labels!(ReleaseResult {
    Released: "released",
    Expired: "expired",
    TakenOver: "taken_over",
    NoQuorum: "no_quorum",
    InBackground: "in_background",
});
