//! Events of acquires and leases.

use super::lock::Lock;
use super::report::Report;
use super::token::FencingToken;
use crate::protocol::Loss;
use std::fmt;
use std::time::Duration;

/// Emitted when an acquire starts, that is, when its future is first polled. Not emitted if the settings of the acquire
/// are invalid.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AcquireBegun<'a> {
    /// The lock to acquire.
    pub lock: Lock<'a>,
    /// Maximum total duration of the acquire; `None` for a single attempt without a time limit.
    pub wait: Option<Duration>,
    /// True if the acquire was started with [`adopt`](crate::Redlock::adopt), which takes over a lock by its value.
    pub is_adoption: bool,
}

/// Emitted when an acquire starts to wait, at most once per acquire. An acquire waits for its turn behind other
/// acquires of the same client, or for its next attempt after a failed one.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct WaitBegun<'a> {
    /// The lock to acquire.
    pub lock: Lock<'a>,
}

/// Emitted when an acquire stops waiting, whether or not it acquired the lock. Emitted once for each [`WaitBegun`],
/// immediately before [`AcquireEnded`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct WaitEnded<'a> {
    /// The lock to acquire.
    pub lock: Lock<'a>,
    /// Time since the start of the wait, including the attempts that were made since then.
    pub waited: Duration,
}

/// Emitted when an attempt to acquire a lock has ended, once per attempt. An attempt sends one round of commands to the
/// nodes, and a second one if the fencing token must be confirmed.
///
/// While an acquire waits, an attempt may contact a single node first. If that node refuses, the attempt is not counted
/// and this event is not emitted.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AttemptEnded<'a> {
    /// The lock to acquire.
    pub lock: Lock<'a>,
    /// Number of this attempt within its acquire, starting at 1.
    pub number: u32,
    /// Result of the attempt.
    pub outcome: AttemptOutcome,
    /// Duration of the attempt, measured from just before the first command of the reported round was sent.
    pub took: Duration,
    /// Replies of the nodes until the attempt ended. If the attempt had two rounds, these are the replies of the first
    /// round if the lock was acquired, otherwise of the second.
    pub report: &'a Report,
}

/// Result of an attempt to acquire a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// The attempt acquired the lock.
    Won,
    /// The attempt did not acquire the lock.
    Refused,
    /// The attempt was abandoned because its future was not polled in time, or because the client was closed.
    GivenUp,
}

/// Emitted when an acquire has ended, once for each [`AcquireBegun`]. Also emitted if the future is dropped.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AcquireEnded<'a> {
    /// The lock to acquire.
    pub lock: Lock<'a>,
    /// Result of the acquire.
    pub outcome: AcquireOutcome,
    /// Time since the start of the acquire. Includes the waits for its turn and for connections, all attempts, and the
    /// pauses between them.
    pub waited: Duration,
    /// Remaining validity of the lease; zero if the lock was not acquired.
    pub validity: Duration,
    /// Fencing token of the lease; `None` if no token was requested or the lock was not acquired.
    pub token: Option<FencingToken>,
    /// Replies of the nodes in the round that determined the result; `None` if there was no such round.
    pub report: Option<&'a Report>,
}

/// Result of an acquire. Every variant except `Won` and `Dropped` corresponds to a kind of
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
    /// A quorum granted the lock, but only after the validity had expired.
    Expired,
    /// The wait time elapsed before an attempt completed.
    Timeout,
    /// An attempt acquired the lock, but the future was not polled before the validity expired. The client therefore
    /// released the lock.
    NotPolled,
    /// This client was too busy to contact a quorum of nodes in time.
    Overloaded,
    /// The client is closed.
    Closed,
    /// There is no tokio runtime, or the runtime was built without the I/O or the time driver.
    NoRuntime,
    /// The future was dropped before the acquire completed.
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

    /// Returns the name of the result in snake case. The name is used as a metric label.
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

/// Emitted when [`adopt`](crate::Redlock::adopt) has taken over a lock by its value, immediately before
/// [`AcquireEnded`]. The previous holder has lost the lock.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HandedOver<'a> {
    /// The adopted lock.
    pub lock: Lock<'a>,
}

/// Emitted when an extension that the holder requested with [`extend`](crate::LeaseRef::extend) or
/// [`ensure`](crate::LeaseRef::ensure) is sent to the nodes. Not emitted if `ensure` finds that no extension is needed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ExtendBegun<'a> {
    /// The lock to extend.
    pub lock: Lock<'a>,
    /// ID of the extension, unique within the client. The matching [`ExtendEnded`] event has the same ID.
    pub id: u64,
    /// The ttl that the extension requests from the nodes.
    pub ttl: Duration,
}

/// Emitted when an extension that the holder requested has ended, once for each [`ExtendBegun`]. Also emitted if the
/// future is dropped.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ExtendEnded<'a> {
    /// The lock to extend.
    pub lock: Lock<'a>,
    /// ID of the extension, as in [`ExtendBegun`].
    pub id: u64,
    /// Result of the extension.
    pub outcome: ExtendOutcome,
    /// Remaining validity of the lease; zero if the lease has ended.
    pub validity: Duration,
    /// Time since the extension was sent to the nodes.
    pub took: Duration,
    /// Replies of the nodes; `None` if the future was dropped.
    pub report: Option<&'a Report>,
}

/// Result of an extension that the holder requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExtendOutcome {
    /// A quorum of nodes confirmed the extension in time. An extension never shortens the validity.
    Extended,
    /// Too few nodes confirmed the extension in time. The validity is unchanged.
    NoQuorum,
    /// The extension failed because the lease has ended.
    Ended,
    /// The future was dropped before the result was known. The validity is unchanged.
    Dropped,
}

impl ExtendOutcome {
    #[cfg(feature = "metrics")]
    pub(super) const ALL: [Self; 4] = [Self::Extended, Self::NoQuorum, Self::Ended, Self::Dropped];

    /// Returns the name of the result in snake case. The name is used as a metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Extended => "extended",
            Self::NoQuorum => "no_quorum",
            Self::Ended => "ended",
            Self::Dropped => "dropped",
        }
    }
}

/// Emitted when the client has renewed a lease in the background, once per successful renewal. See
/// [`auto_extend`](crate::Acquire::auto_extend).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Renewed<'a> {
    /// The renewed lock.
    pub lock: Lock<'a>,
    /// Remaining validity just before the renewal succeeded.
    pub slack: Duration,
    /// Remaining validity after the renewal.
    pub validity: Duration,
    /// Number of renewals that failed since the last successful one.
    pub failures: u32,
}

/// Emitted when a background renewal has failed, once per failure. The client retries the renewal until the validity
/// ends.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RenewalFailing<'a> {
    /// The lock to renew.
    pub lock: Lock<'a>,
    /// Number of consecutive failed renewals, including this one.
    pub failures: u32,
    /// Remaining validity. The lease is lost if no renewal succeeds within this time.
    pub left: Duration,
    /// Number of resources for which this client holds a lease, including the resources of this lock.
    pub held: usize,
    /// Replies of the nodes to the failed renewal.
    pub report: &'a Report,
}

/// Emitted when the client detects that a lease was lost, once per lost lease. A lease is lost if it ends before its
/// holder releases it.
///
/// The client detects the loss immediately if the lease has background renewal or a task waits for the loss. Otherwise
/// it detects the loss at the next extension or at the release.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LeaseLost<'a> {
    /// The lost lock.
    pub lock: Lock<'a>,
    /// Reason why the lease was lost.
    pub reason: Loss,
    /// Time since the lease was acquired.
    pub held_for: Duration,
}

/// Emitted when the last guard of a lease is released or dropped. Not emitted if [`close`](crate::Redlock::close) or
/// [`release_all`](crate::Redlock::release_all) has already released the lock.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReleaseBegun<'a> {
    /// The lock to release.
    pub lock: Lock<'a>,
    /// Time since the lease was acquired.
    pub held_for: Duration,
    /// Reason why the lease was lost before the release; `None` if the lease held the lock until then.
    pub loss: Option<Loss>,
}

/// Emitted when a release has completed, or when its caller no longer waits and the release continues in the
/// background. Emitted once for each [`ReleaseBegun`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReleaseEnded<'a> {
    /// The lock to release.
    pub lock: Lock<'a>,
    /// Result of the release.
    pub result: ReleaseResult,
    /// Time since the start of the release.
    pub took: Duration,
    /// Replies of the nodes if too few of them confirmed the release, otherwise `None`.
    pub report: Option<&'a Report>,
}

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
    /// The lease or the future of the release was dropped, so no caller waits for the result. The release continues in
    /// the background.
    InBackground,
}

impl ReleaseResult {
    #[cfg(feature = "metrics")]
    pub(super) const ALL: [Self; 5] =
        [Self::Released, Self::Expired, Self::TakenOver, Self::NoQuorum, Self::InBackground];

    /// Returns the name of the result in snake case. The name is used as a metric label.
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
