//! What can happen to a lock.

use super::lock::Lock;
use super::report::Report;
use super::token::FencingToken;
use crate::protocol::Loss;
use std::fmt;
use std::time::Duration;

/// An acquire has begun: its future was polled for the first time, and its settings can work.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AcquireBegun<'a> {
    /// What is to be locked.
    pub lock: Lock<'a>,
    /// How long it tries at most; `None` for a single attempt that takes its time.
    pub wait: Option<Duration>,
    /// True if it is to take over a lock by its value: see [`adopt`](crate::Redlock::adopt).
    pub is_adoption: bool,
}

/// An acquire has to wait: it stands in line behind others of its client, or its attempt was refused and it will make
/// another. Told once for an acquire at most.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct WaitBegun<'a> {
    /// What is to be locked.
    pub lock: Lock<'a>,
}

/// It waits no more: it has got the lock, or has given up. Told right before the acquire [ends](AcquireEnded), once
/// for each wait that has begun.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct WaitEnded<'a> {
    /// What was to be locked.
    pub lock: Lock<'a>,
    /// For how long it has waited, its further attempts included.
    pub waited: Duration,
}

/// One attempt of an acquire is over: its round, or two.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AttemptEnded<'a> {
    /// What is to be locked.
    pub lock: Lock<'a>,
    /// The how-manieth of its acquire it was, from 1 on.
    pub number: u32,
    /// What came of it.
    pub outcome: AttemptOutcome,
    /// How long it took, from just before its first command was sent.
    pub took: Duration,
    /// What each node said, as far as it was heard by then.
    pub report: &'a Report,
}

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// It got the lock.
    Won,
    /// It did not.
    Refused,
    /// Its future was not polled for so long that it was given up.
    GivenUp,
}

/// An acquire has ended. Each that has begun ends once, also if its future is dropped.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AcquireEnded<'a> {
    /// What was to be locked.
    pub lock: Lock<'a>,
    /// What came of it.
    pub outcome: AcquireOutcome,
    /// How long it took, from when it began: the wait for the turn and for connections, all attempts, and
    /// the rests between them.
    pub waited: Duration,
    /// What the lease has left of its validity, if it was won; else zero.
    pub validity: Duration,
    /// Its fencing token, if it was won with one.
    pub token: Option<FencingToken>,
    /// The votes: what each node said in the round that decided, if there was one.
    pub report: Option<&'a Report>,
}

/// What came of an acquire: the lock, or the kind of [`AcquireError`](crate::AcquireError).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AcquireOutcome {
    /// The lock is ours.
    Won,
    /// Others hold it.
    Contended,
    /// What was to be adopted does not stand there.
    NotHeld,
    /// Too few nodes answered.
    NoQuorum,
    /// They granted too late for the ttl.
    Expired,
    /// The wait bound ended before an attempt was decided.
    Timeout,
    /// The future was not polled in time.
    NotPolled,
    /// This client has too much under way.
    Overloaded,
    /// The client was closed.
    Closed,
    /// There is no runtime that it can run on.
    NoRuntime,
    /// Its future was dropped before it ended.
    Dropped,
}

impl AcquireOutcome {
    /// Each of them.
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

    /// One word in small letters, as a label.
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

/// A lock has changed hands: [`adopt`](crate::Redlock::adopt) took it over by its value, and whoever had it
/// has lost it. Told right before the acquire [ends](AcquireEnded) that it was.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HandedOver<'a> {
    /// What was taken over.
    pub lock: Lock<'a>,
}

/// A holder has asked for an extension, by [`extend`](crate::LeaseRef::extend) or
/// [`ensure`](crate::LeaseRef::ensure), and the nodes are asked.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ExtendBegun<'a> {
    /// What is held.
    pub lock: Lock<'a>,
    /// Which extension of its client it is.
    pub id: u64,
    /// The ttl that was asked for.
    pub ttl: Duration,
}

/// Such an extension has ended. Each that has begun ends once.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ExtendEnded<'a> {
    /// What is held, or was.
    pub lock: Lock<'a>,
    /// Which extension of its client it is.
    pub id: u64,
    /// What came of it.
    pub outcome: ExtendOutcome,
    /// What is left of the validity.
    pub validity: Duration,
    /// How long it took.
    pub took: Duration,
    /// What each node said, unless the future was dropped.
    pub report: Option<&'a Report>,
}

/// What came of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExtendOutcome {
    /// The lease is valid for longer.
    Extended,
    /// Too few nodes confirmed: nothing has changed.
    NoQuorum,
    /// The lease has ended.
    Ended,
    /// Its future was dropped: nothing has changed.
    Dropped,
}

impl ExtendOutcome {
    /// Each of them.
    #[cfg(feature = "metrics")]
    pub(super) const ALL: [Self; 4] = [Self::Extended, Self::NoQuorum, Self::Ended, Self::Dropped];

    /// One word in small letters, as a label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Extended => "extended",
            Self::NoQuorum => "no_quorum",
            Self::Ended => "ended",
            Self::Dropped => "dropped",
        }
    }
}

/// A lease was extended in the background: see [`auto_extend`](crate::Acquire::auto_extend).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Renewed<'a> {
    /// What is held.
    pub lock: Lock<'a>,
    /// What was left of the validity when this was known: how near it was to the loss.
    pub slack: Duration,
    /// What is left of it now.
    pub validity: Duration,
    /// How many extensions had failed since the last that did not.
    pub failures: u32,
}

/// An extension in the background has failed. It is tried again until the validity ends; this is told each
/// time.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RenewalFailing<'a> {
    /// What is held.
    pub lock: Lock<'a>,
    /// How many have failed in a row by now.
    pub failures: u32,
    /// What is left of the validity. If no extension comes through by then, the lease is lost.
    pub left: Duration,
    /// How many resources this client holds, this one included.
    pub held: usize,
    /// What each node said.
    pub report: &'a Report,
}

/// A lease was lost: it ended before its holder released it. Told once, when it is noticed: at once for a
/// lease that is renewed, or whose loss somebody waits for; else when it is extended or released.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LeaseLost<'a> {
    /// What was held.
    pub lock: Lock<'a>,
    /// Why it ended.
    pub reason: Loss,
    /// How long ago it was acquired.
    pub held_for: Duration,
}

/// The last guard of a lease is given up: it was released or dropped.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReleaseBegun<'a> {
    /// What is given up.
    pub lock: Lock<'a>,
    /// How long ago it was acquired.
    pub held_for: Duration,
    /// Why it was lost, if it was by then.
    pub loss: Option<Loss>,
}

/// A release has ended, as far as its holder waits for it. Each that has begun ends once.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReleaseEnded<'a> {
    /// What was given up.
    pub lock: Lock<'a>,
    /// What came of it.
    pub result: ReleaseResult,
    /// How long it took.
    pub took: Duration,
    /// What each node said, if that is why it is not known.
    pub report: Option<&'a Report>,
}

/// What came of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseResult {
    /// It was held up to then.
    Released,
    /// Its time had ended.
    Expired,
    /// Others hold the lock by now.
    TakenOver,
    /// Too few nodes confirmed it within the node timeout. It continues in the background until each node confirms it,
    /// or until the lock expires.
    NoQuorum,
    /// Nobody waits for it: the lease, or the release, was dropped. The nodes are told in the background.
    InBackground,
}

impl ReleaseResult {
    /// Each of them.
    #[cfg(feature = "metrics")]
    pub(super) const ALL: [Self; 5] =
        [Self::Released, Self::Expired, Self::TakenOver, Self::NoQuorum, Self::InBackground];

    /// One word in small letters, as a label.
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
