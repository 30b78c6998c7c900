//! Events of locks.

use super::lock::Lock;
use super::report::Report;
use super::token::FencingToken;
use crate::protocol::Loss;
use std::fmt;
use std::time::Duration;

/// An acquire has started: its future was polled for the first time, and its settings are valid.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AcquireBegun<'a> {
    /// The lock to acquire.
    pub lock: Lock<'a>,
    /// Maximum time to wait; `None` for a single attempt without a limit.
    pub wait: Option<Duration>,
    /// True for [`adopt`](crate::Redlock::adopt), which takes over a lock by its value.
    pub is_adoption: bool,
}

/// An acquire waits for its turn behind others of this client, or for its next attempt after a refusal. At most one
/// event per acquire.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct WaitBegun<'a> {
    /// The lock to acquire.
    pub lock: Lock<'a>,
}

/// An acquire has stopped waiting, with or without the lock. One event for each [`WaitBegun`], immediately before
/// [`AcquireEnded`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct WaitEnded<'a> {
    /// The lock to acquire.
    pub lock: Lock<'a>,
    /// Duration of the wait, including further attempts.
    pub waited: Duration,
}

/// An attempt of an acquire has ended. It sends one or two rounds of commands.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AttemptEnded<'a> {
    /// The lock to acquire.
    pub lock: Lock<'a>,
    /// Number of this attempt, starting at 1.
    pub number: u32,
    /// Result of the attempt.
    pub outcome: AttemptOutcome,
    /// Duration of the attempt, from just before its first command was sent.
    pub took: Duration,
    /// Replies of the nodes up to the end of the attempt.
    pub report: &'a Report,
}

/// Result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// The lock was acquired.
    Won,
    /// The lock was not acquired.
    Refused,
    /// The attempt was abandoned because its future was not polled.
    GivenUp,
}

/// An acquire has ended. One event for each [`AcquireBegun`], also if the future is dropped.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AcquireEnded<'a> {
    /// The lock to acquire.
    pub lock: Lock<'a>,
    /// Result of the acquire.
    pub outcome: AcquireOutcome,
    /// Duration from the start of the acquire. Includes waiting for the turn and for connections, all attempts and the
    /// pauses between them.
    pub waited: Duration,
    /// Remaining validity of the lease; zero if the lock was not acquired.
    pub validity: Duration,
    /// Fencing token, if requested and acquired.
    pub token: Option<FencingToken>,
    /// Replies of the nodes in the deciding round, if there was one.
    pub report: Option<&'a Report>,
}

/// Result of an acquire: the lock, or the kind of [`AcquireError`](crate::AcquireError).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AcquireOutcome {
    /// The lock was acquired.
    Won,
    /// Other leases hold the lock.
    Contended,
    /// The value to adopt is not stored on a quorum of nodes.
    NotHeld,
    /// Too few nodes replied.
    NoQuorum,
    /// A quorum was reached after the validity had expired.
    Expired,
    /// The wait time passed before an attempt completed.
    Timeout,
    /// The future was not polled in time.
    NotPolled,
    /// This client was too busy to contact a quorum of nodes in time.
    Overloaded,
    /// The client is closed.
    Closed,
    /// No suitable tokio runtime is available.
    NoRuntime,
    /// The future was dropped.
    Dropped,
}

impl AcquireOutcome {
    #[cfg(feature = "metrics")]
    pub(super) const ALL: [Self; 11] = [
        Self::Won,
        Self::Contended,
        Self::NotHeld,
        Self::NoQuorum,
        Self::Expired,
        Self::Timeout,
        Self::NotPolled,
        Self::Overloaded,
        Self::Closed,
        Self::NoRuntime,
        Self::Dropped,
    ];

    /// The result in snake case, used as a metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Won => "won",
            Self::Contended => "contended",
            Self::NotHeld => "not_held",
            Self::NoQuorum => "no_quorum",
            Self::Expired => "expired",
            Self::Timeout => "timeout",
            Self::NotPolled => "not_polled",
            Self::Overloaded => "overloaded",
            Self::Closed => "closed",
            Self::NoRuntime => "no_runtime",
            Self::Dropped => "dropped",
        }
    }
}

impl fmt::Display for AcquireOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A lock was taken over by its value with [`adopt`](crate::Redlock::adopt), and its former holder has lost it. Occurs
/// immediately before the [`AcquireEnded`] event.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HandedOver<'a> {
    /// The adopted lock.
    pub lock: Lock<'a>,
}

/// A holder requests an extension by [`extend`](crate::LeaseRef::extend) or [`ensure`](crate::LeaseRef::ensure), which
/// is sent to the nodes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ExtendBegun<'a> {
    /// The lock to extend.
    pub lock: Lock<'a>,
    /// Number of the extension, unique within its client.
    pub id: u64,
    /// The requested ttl.
    pub ttl: Duration,
}

/// An extension requested by a holder has ended. One event for each [`ExtendBegun`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ExtendEnded<'a> {
    /// The lock to extend.
    pub lock: Lock<'a>,
    /// Number of the extension, unique within its client.
    pub id: u64,
    /// Result of the extension.
    pub outcome: ExtendOutcome,
    /// Remaining validity.
    pub validity: Duration,
    /// Duration of the extension.
    pub took: Duration,
    /// Replies of the nodes; `None` if the future was dropped.
    pub report: Option<&'a Report>,
}

/// Result of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExtendOutcome {
    /// The validity was extended.
    Extended,
    /// Too few nodes confirmed; the validity is unchanged.
    NoQuorum,
    /// The lease has ended.
    Ended,
    /// The future was dropped; the validity is unchanged.
    Dropped,
}

impl ExtendOutcome {
    #[cfg(feature = "metrics")]
    pub(super) const ALL: [Self; 4] = [Self::Extended, Self::NoQuorum, Self::Ended, Self::Dropped];

    /// The result in snake case, used as a metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Extended => "extended",
            Self::NoQuorum => "no_quorum",
            Self::Ended => "ended",
            Self::Dropped => "dropped",
        }
    }
}

/// A lease was renewed in the background; see [`auto_extend`](crate::Acquire::auto_extend).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Renewed<'a> {
    /// The renewed lock.
    pub lock: Lock<'a>,
    /// Validity that remained before the renewal succeeded.
    pub slack: Duration,
    /// Remaining validity after the renewal.
    pub validity: Duration,
    /// Number of failed renewals since the last successful one.
    pub failures: u32,
}

/// A background renewal has failed. Renewals are retried until the validity ends, with one event for each failure.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RenewalFailing<'a> {
    /// The lock to renew.
    pub lock: Lock<'a>,
    /// Number of consecutive failures.
    pub failures: u32,
    /// Remaining validity. The lease is lost if no renewal succeeds within it.
    pub left: Duration,
    /// Number of resources that this client holds, including this lock's.
    pub held: usize,
    /// Replies of the nodes.
    pub report: &'a Report,
}

/// A lease was lost: it ended before its holder released it. One event, on detection: immediately if the lease is
/// renewed or a task waits for its loss; otherwise with the next extension or the release.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LeaseLost<'a> {
    /// The lost lock.
    pub lock: Lock<'a>,
    /// How the lease ended.
    pub reason: Loss,
    /// Time since the lease was acquired.
    pub held_for: Duration,
}

/// The last guard of a lease was released or dropped.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReleaseBegun<'a> {
    /// The lock to release.
    pub lock: Lock<'a>,
    /// Time since the lease was acquired.
    pub held_for: Duration,
    /// How the lease was lost before the release, if it was.
    pub loss: Option<Loss>,
}

/// A release has ended, or continues in the background. One event for each [`ReleaseBegun`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReleaseEnded<'a> {
    /// The lock to release.
    pub lock: Lock<'a>,
    /// Result of the release.
    pub result: ReleaseResult,
    /// Duration of the release.
    pub took: Duration,
    /// Replies of the nodes, if the release was not confirmed.
    pub report: Option<&'a Report>,
}

/// Result of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseResult {
    /// The lock was held until its release.
    Released,
    /// The lock had expired or was deleted before.
    Expired,
    /// Another client has acquired the lock before.
    TakenOver,
    /// Too few nodes confirmed within the node timeout. The release continues in the background until each node
    /// confirms it, or until the lock expires.
    NoQuorum,
    /// The lease or the release was dropped, so the result is not awaited. The release continues in the background.
    InBackground,
}

impl ReleaseResult {
    #[cfg(feature = "metrics")]
    pub(super) const ALL: [Self; 5] =
        [Self::Released, Self::Expired, Self::TakenOver, Self::NoQuorum, Self::InBackground];

    /// The result in snake case, used as a metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Expired => "expired",
            Self::TakenOver => "taken_over",
            Self::NoQuorum => "no_quorum",
            Self::InBackground => "in_background",
        }
    }
}
