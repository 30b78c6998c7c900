//! Public error types, one per operation. Messages name the failure and, if possible, the remedy.
//!
//! Failures of single nodes are not defined here: reports and findings contain them as
//! [`NodeFailure`](crate::NodeFailure).

mod config;
mod kind;

pub use config::ConfigError;

use crate::node::{NoRuntime, Unready};
use crate::observe::Report;
use crate::protocol::Loss;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Error returned by [`Acquire`](crate::Acquire) if the lock was not acquired. The client deletes the keys that failed
/// attempts have set.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Other leases hold the lock on enough nodes to prevent a quorum. A later attempt can succeed.
    #[error("held by {}: {report}", whom(*.held_here))]
    Contended {
        /// Report of the last completed attempt.
        report: Box<Report>,
        /// True if a lease of this client holds the lock. For [`acquire_any`](crate::Redlock::acquire_any), true if
        /// leases of this client hold all the resources. The calling code may own that lease and can then
        /// [reenter](crate::LeaseRef::reenter) it.
        held_here: bool,
    },
    /// No quorum of nodes stores the value that was passed to [`adopt`](crate::Redlock::adopt). The lease with this
    /// value has ended, or another client has adopted the lock.
    #[error("no lock with this value to adopt: {report}")]
    NotHeld {
        /// The nodes' replies.
        report: Box<Report>,
    },
    /// Too few nodes replied with a vote that counts. The other nodes failed, or are excluded, for example after a
    /// restart. The lock may be free or held.
    #[error("no quorum of nodes available: {report}")]
    NoQuorum {
        /// Report of the last completed attempt.
        report: Box<Report>,
    },
    /// A quorum granted the lock, but only after the validity had expired. The nodes, the network or this process were
    /// too slow for the TTL.
    #[error("quorum reached after the validity had expired: {report}")]
    Expired {
        /// Report of the last completed attempt.
        report: Box<Report>,
    },
    /// The wait time elapsed before an attempt completed.
    #[error("timed out before an attempt completed{}", after_colon(report.as_deref()))]
    Timeout {
        /// Report of the interrupted attempt. If no attempt had started, the report contains no replies. Currently
        /// never `None`.
        report: Option<Box<Report>>,
    },
    /// An attempt acquired the lock, but the future was not polled for 2 s, or until the validity expired, so the client
    /// released the lock for other clients. The nodes are not the cause. Poll the future more often, or spawn it as a
    /// separate task. If wait time remains when the future is polled, the acquire tries again instead of failing.
    #[error(
        "the acquired lock was released because the future was not polled for 2 s, or until its validity expired: {report}"
    )]
    NotPolled {
        /// Report of the attempt whose lock was released.
        report: Box<Report>,
    },
    /// This client was too busy to contact a quorum of nodes in time. The nodes are not the cause. Acquire fewer locks
    /// concurrently, or use [`acquire`](crate::Redlock::acquire), which retries within its wait time.
    #[error("this client was too busy to contact a quorum of nodes in time{}", after_colon(report.as_deref()))]
    Overloaded {
        /// Report of the last completed attempt. `None` if no attempt completed.
        report: Option<Box<Report>>,
    },
    /// The client was [closed](crate::Redlock::close).
    #[error("the client is closed")]
    Closed,
    /// The client has no usable runtime, or the system cannot start the client's timer. The call had no effect.
    #[error("no usable runtime: {reason}")]
    NoRuntime {
        /// Why no runtime can serve the client.
        #[source]
        reason: NoRuntime,
    },
    /// The client failed internally, because its code panicked during this call or the process was forked. The next
    /// call starts with new connections. Please report a panic as a bug.
    #[error("internal error: {reason}")]
    Internal {
        /// The panic message.
        reason: String,
    },
    /// A setting of this acquire is invalid, or conflicts with other settings.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
}

impl AcquireError {
    /// Returns the report in the error, or `None` if the error has no report.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::Contended { report, .. }
            | Self::NotHeld { report }
            | Self::NoQuorum { report }
            | Self::Expired { report }
            | Self::NotPolled { report } => Some(report),
            Self::Timeout { report } | Self::Overloaded { report } => report.as_deref(),
            Self::Closed | Self::NoRuntime { .. } | Self::Internal { .. } | Self::Invalid(_) => {
                None
            }
        }
    }
}

/// Error returned by [`LeaseRef::extend`](crate::LeaseRef::extend) and [`LeaseRef::ensure`](crate::LeaseRef::ensure).
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// The lease was lost. The protected work must stop.
    #[error("the lease is lost ({reason}){}", after_colon(report.as_deref()))]
    Lost {
        /// Reason why the lease was lost.
        #[source]
        reason: Loss,
        /// The nodes' replies. `None` if no request was sent.
        report: Option<Box<Report>>,
    },
    /// The last guard of the lease was released or dropped. Only calls on a [view](crate::Lease::view) can return this
    /// error.
    #[error("the lease was released")]
    Released,
    /// Too few nodes confirmed the extension in time. The lease remains valid for `still_valid_for`, and the caller can
    /// extend it again. A failed [`extend`](crate::LeaseRef::extend) does not change the validity.
    #[error("extension not confirmed by a quorum, still valid for {still_valid_for:?}: {report}")]
    NoQuorum {
        /// Remaining validity of the lease.
        still_valid_for: Duration,
        /// The nodes' replies.
        report: Box<Report>,
    },
    /// The requested TTL or validity is invalid.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
}

/// Error returned by [`LeaseRef::downgrade`](crate::LeaseRef::downgrade).
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum DowngradeError {
    /// The lease does not belong to a writer: it was not acquired with [`RwLock::write`](crate::RwLock::write), or was
    /// downgraded before. The lease is unchanged.
    #[error(
        "not a writer's lease: only a lease of RwLock::write() can be downgraded, and only once"
    )]
    NotAWriter,
    /// A quorum has not confirmed the downgrade, or the lease has ended. If the lease has not ended, it is a reader's
    /// lease, with unchanged validity.
    #[error("downgrade not confirmed: {0}")]
    Unconfirmed(#[source] ExtendError),
}

/// Error returned by [`LeaseRef::reenter`](crate::LeaseRef::reenter) if the lease has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReenterError {
    /// The lease was lost.
    #[error("the lease is lost ({reason})")]
    Lost {
        /// Reason why the lease was lost.
        #[source]
        reason: Loss,
    },
    /// The last guard of the lease was released or dropped.
    #[error("the lease was released")]
    Released,
}

/// Error returned by operations that could not contact the nodes, such as [`Redlock::status`](crate::Redlock::status)
/// and [`Redlock::check`](crate::Redlock::check).
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The client was [closed](crate::Redlock::close).
    #[error("the client is closed")]
    Closed,
    /// The client has no usable runtime, or the system cannot start the client's timer. The call had no effect.
    #[error("no usable runtime: {reason}")]
    NoRuntime {
        /// Why no runtime can serve the client.
        #[source]
        reason: NoRuntime,
    },
    /// The name of the resource is invalid.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
}

impl From<Unready> for ClientError {
    fn from(reason: Unready) -> Self {
        match reason {
            Unready::Closed => Self::Closed,
            Unready::NoRuntime(reason) => reason.into(),
        }
    }
}

impl From<NoRuntime> for ClientError {
    fn from(reason: NoRuntime) -> Self {
        Self::NoRuntime { reason }
    }
}

/// Error returned if a release could not be confirmed, or if the requested cool-down is too long. In both cases, the
/// lease has ended. Nodes that did not reply receive the release as soon as possible, and the keys expire at the end of
/// their TTL.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// Too few nodes confirmed the release in time.
    #[error("release not confirmed by a quorum: {report}")]
    NoQuorum {
        /// The nodes' replies.
        report: Box<Report>,
    },
    /// The requested cool-down exceeds `max_ttl`. The client limited it to `max_ttl`.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
}

/// Error returned by [`Redlock::close`](crate::Redlock::close) if releases were still pending after one [connect
/// timeout](crate::Builder::connect_timeout).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("closed before all releases were delivered; pending: {}", listed(undelivered))]
pub struct CloseError {
    undelivered: Vec<(String, usize)>,
}

impl CloseError {
    pub(crate) fn new(undelivered: Vec<(Arc<str>, usize)>) -> Self {
        let name = |(name, count): (Arc<str>, usize)| (name.to_string(), count);
        Self { undelivered: undelivered.into_iter().map(name).collect() }
    }

    /// Returns the address of each node with pending releases, and the number of its pending releases. The keys of
    /// these releases expire at the end of their TTL.
    pub fn undelivered(&self) -> &[(String, usize)] {
        &self.undelivered
    }
}

fn whom(here: bool) -> &'static str {
    if here { "another lease of this client" } else { "another client" }
}

fn listed(undelivered: &[(String, usize)]) -> String {
    let each = undelivered.iter().map(|(node, count)| format!("{node} ({count})"));
    each.collect::<Vec<_>>().join(", ")
}

fn after_colon(report: Option<&Report>) -> String {
    report.map_or_else(String::new, |report| format!(": {report}"))
}
