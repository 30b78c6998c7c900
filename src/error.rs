//! What can go wrong, one small enum per operation. Each reason says what it is and, where the
//! caller can do something about it, what to do.

use crate::protocol::Loss;
use crate::report::Report;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Settings that cannot work, alone or together.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No node was given.
    #[error("no node given: pass at least one address to nodes(), better three or five")]
    NoNodes,
    /// More nodes were given than can vote.
    #[error("{given} nodes given, at most {most} can vote: five are plenty")]
    TooManyNodes {
        /// How many were given.
        given: usize,
        /// How many there can be.
        most: usize,
    },
    /// The same server was given twice: its vote would count double.
    #[error("node {name} is given twice: each must be a server of its own")]
    SameNode {
        /// The address.
        name: String,
    },
    /// An address that is no Redis URL.
    #[error("node {position} has no good URL ({url}): {reason}; write it as redis://host:port")]
    BadUrl {
        /// Its place in the list, counted from 1.
        position: usize,
        /// The address, without user and password.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A `rediss://` address, but quorlock was built without TLS.
    #[error("node {url} wants TLS: build quorlock with the feature `tls-rustls`")]
    TlsNotEnabled {
        /// The address, without user and password.
        url: String,
    },
    /// A ttl below one millisecond, or above a hundred years.
    #[error("a ttl of {ttl:?} cannot be told to Redis: it must be from 1 ms to 100 years")]
    BadTtl {
        /// What was asked for.
        ttl: Duration,
    },
    /// A ttl, an extension or a cool-down that is longer than what the restart guard waits for.
    #[error(
        "a ttl of {ttl:?} is longer than the max_ttl of {max_ttl:?}: use a shorter one, or raise \
         max_ttl() on all clients of these nodes, and then use it"
    )]
    TtlExceedsMax {
        /// What was asked for.
        ttl: Duration,
        /// The longest that any client of the nodes may ask for; see
        /// [`max_ttl`](crate::Builder::max_ttl).
        max_ttl: Duration,
    },
    /// Counters that could be gone before the lease is whose token they have given.
    #[error(
        "a token_ttl of {token_ttl:?} is shorter than the max_ttl of {max_ttl:?}: tokens must be \
         remembered for as long as the longest lease, better for a day"
    )]
    TokenTtlBelowMax {
        /// What was asked for.
        token_ttl: Duration,
        /// The longest ttl of a lease; see [`max_ttl`](crate::Builder::max_ttl).
        max_ttl: Duration,
    },
    /// A drift factor that is no share of the ttl.
    #[error("a drift factor of {factor} makes no sense: it must be at least 0 and below 1")]
    BadDriftFactor {
        /// What was asked for.
        factor: f64,
    },
    /// The allowance for drift leaves nothing of the ttl.
    #[error("a ttl of {ttl:?} is used up by the drift allowance of {drift:?}: use a longer ttl")]
    DriftExceedsTtl {
        /// The ttl.
        ttl: Duration,
        /// The allowance for it.
        drift: Duration,
    },
    /// Waiting for a slow node could use up the whole validity.
    #[error(
        "a node timeout of {node_timeout:?} can outlast the validity of {validity:?} that a ttl of \
         {ttl:?} gives: use a shorter node timeout or a longer ttl"
    )]
    NodeTimeoutExceedsValidity {
        /// The node timeout.
        node_timeout: Duration,
        /// The ttl.
        ttl: Duration,
        /// The ttl less the allowance for drift.
        validity: Duration,
    },
    /// Nothing was given to lock.
    #[error("no resource given: pass at least one to acquire_all()")]
    NoResources,
    /// More resources were given than one lease can hold: a node would be busy with them for too
    /// long.
    #[error("{given} resources given, at most {most} can be locked together")]
    TooManyResources {
        /// How many were given.
        given: usize,
        /// How many there can be.
        most: usize,
    },
    /// Metadata that is too long to be sent with every command.
    #[error("metadata of {length} bytes given, at most {most} are taken")]
    LongMetadata {
        /// Its length in bytes.
        length: usize,
        /// How long it can be.
        most: usize,
    },
    /// The blocking client needs a thread, and the system gives none.
    #[error("no thread for the connections of a blocking client: {reason}")]
    NoThread {
        /// What the system says.
        reason: String,
    },
    /// A timeout of zero, in which nothing can ever succeed.
    #[error("{setting} is zero: nothing could ever succeed in it")]
    ZeroTimeout {
        /// The setting's name.
        setting: &'static str,
    },
}

/// Why a lock was not acquired. Whatever the reason, nothing of the attempts stays on the nodes.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// A quorum of nodes answered, and others hold the lock on so many of them that no quorum is
    /// left. Trying again later can help.
    #[error("held by {}: {report}", whom(*.held_here))]
    Contended {
        /// The last round that was decided.
        report: Box<Report>,
        /// True if a lease of this very client holds it: maybe one that this code has, and that it
        /// could [reenter](crate::LeaseRef::reenter).
        held_here: bool,
    },
    /// [`adopt`](crate::Redlock::adopt): the value that was handed over does not stand on a quorum
    /// of nodes. What it stood for has ended, or somebody else has adopted it.
    #[error("nothing to adopt: {report}")]
    NotHeld {
        /// What the nodes said.
        report: Box<Report>,
    },
    /// Too few nodes answered: an outage, which says nothing of who holds the lock.
    #[error("too few nodes answered: {report}")]
    NoQuorum {
        /// The last round that was decided.
        report: Box<Report>,
    },
    /// A quorum granted, but by then the validity was used up: the nodes, the network or this
    /// process are too slow for the ttl.
    #[error("granted too late to be of use: {report}")]
    Expired {
        /// The last round that was decided.
        report: Box<Report>,
    },
    /// The wait bound ended before any attempt was decided.
    #[error("the wait bound ended before an attempt was decided{}", after_colon(report.as_deref()))]
    Timeout {
        /// The attempt that was cut short, if one had begun.
        report: Option<Box<Report>>,
    },
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
    /// There is no tokio runtime to run on.
    #[error("no tokio runtime: call this inside one, or give the builder one with runtime()")]
    NoRuntime,
    /// A verb of the blocking client was called while an async task is being polled.
    #[error("called inside an async runtime: use the async client there, or spawn_blocking")]
    InsideRuntime,
    /// The settings of this call cannot work.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
}

impl AcquireError {
    /// What each node said, if any was asked.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::Contended { report, .. }
            | Self::NotHeld { report }
            | Self::NoQuorum { report }
            | Self::Expired { report } => Some(report),
            Self::Timeout { report } => report.as_deref(),
            Self::Closed | Self::NoRuntime | Self::InsideRuntime | Self::Invalid(_) => None,
        }
    }
}

/// Why a lease was not extended.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// The lease has ended, and stays ended. Stop what it protected.
    #[error("the lease is lost ({reason}){}", after_colon(report.as_deref()))]
    Lost {
        /// How it ended.
        reason: Loss,
        /// What the nodes said, if they were asked.
        report: Option<Box<Report>>,
    },
    /// The lease was released, as can happen to a [view](crate::Lease::view) of it.
    #[error("the lease was released")]
    Released,
    /// Too few nodes confirmed in time. Nothing has changed: the lease is held for as long as it
    /// was before, nothing was deleted, and it may be extended again.
    #[error("too few nodes confirmed, still valid for {still_valid_for:?}: {report}")]
    NoQuorum {
        /// What is left of the validity.
        still_valid_for: Duration,
        /// What the nodes said.
        report: Box<Report>,
    },
    /// A verb of the blocking client was called while an async task is being polled.
    #[error("called inside an async runtime: use the async client there, or spawn_blocking")]
    InsideRuntime,
    /// The ttl asked for cannot work.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
}

/// Why a lease was not entered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReenterError {
    /// The lease has ended, and stays ended.
    #[error("the lease is lost ({reason})")]
    Lost {
        /// How it ended.
        reason: Loss,
    },
    /// Its last guard has released it.
    #[error("the lease was released")]
    Released,
}

/// Why the nodes were not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
    /// There is no tokio runtime to run on.
    #[error("no tokio runtime: call this inside one, or give the builder one with runtime()")]
    NoRuntime,
    /// A verb of the blocking client was called while an async task is being polled.
    #[error("called inside an async runtime: use the async client there, or spawn_blocking")]
    InsideRuntime,
}

/// Why it is not known what a release came to. The lease has ended all the same: nodes that did not
/// answer are told as soon as they do, and at the latest its keys expire.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// Too few nodes confirmed in time.
    #[error("too few nodes confirmed the release: {report}")]
    NoQuorum {
        /// What the nodes said.
        report: Box<Report>,
    },
    /// A verb of the blocking client was called while an async task is being polled. The lease was
    /// dropped, so it is released in the background.
    #[error("called inside an async runtime: use the async client there, or spawn_blocking")]
    InsideRuntime,
    /// The cool-down asked for cannot work.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
}

/// What could not be delivered before a client was closed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("closed before all releases were delivered; still owed: {}", listed(undelivered))]
pub struct CloseError {
    undelivered: Vec<(String, usize)>,
}

impl CloseError {
    pub(crate) fn new(undelivered: Vec<(Arc<str>, usize)>) -> Self {
        let name = |(name, count): (Arc<str>, usize)| (name.to_string(), count);
        Self { undelivered: undelivered.into_iter().map(name).collect() }
    }

    /// The nodes that are still owed releases, by address, and how many. They expire by themselves.
    pub fn undelivered(&self) -> &[(String, usize)] {
        &self.undelivered
    }
}

fn whom(here: bool) -> &'static str {
    if here { "another lease of this client" } else { "another" }
}

fn listed(undelivered: &[(String, usize)]) -> String {
    let each = undelivered.iter().map(|(node, count)| format!("{node} ({count})"));
    each.collect::<Vec<_>>().join(", ")
}

fn after_colon(report: Option<&Report>) -> String {
    report.map_or_else(String::new, |report| format!(": {report}"))
}
