//! Public error types, one per operation. Messages name the failure and, if possible, the remedy.
//!
//! Contains no error of a single node: a report or a finding has these.

mod config;
mod kind;

pub use config::ConfigError;

use crate::node::{NoRuntime, RuntimeDriver};
use crate::observe::Report;
use crate::protocol::Loss;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Why a lock was not acquired. Keys set by failed attempts are deleted.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Other leases hold the lock on enough nodes to prevent a quorum. A later attempt can succeed.
    #[error("held by {}: {report}", whom(*.held_here))]
    Contended {
        /// Report of the last completed attempt.
        report: Box<Report>,
        /// True if a lease of this client holds the lock. The calling code may own that lease and could
        /// [reenter](crate::LeaseRef::reenter) it.
        held_here: bool,
    },
    /// [`adopt`](crate::Redlock::adopt): no quorum of nodes stores the given value. Its lease has ended, or another
    /// client has adopted it.
    #[error("no lock with this value to adopt: {report}")]
    NotHeld {
        /// Replies of the nodes.
        report: Box<Report>,
    },
    /// Too few nodes replied. The lock may be free or held.
    #[error("no quorum of nodes available: {report}")]
    NoQuorum {
        /// Report of the last completed attempt.
        report: Box<Report>,
    },
    /// A quorum granted the lock, but only after the validity had expired. The nodes, the network or this process are
    /// too slow for the ttl.
    #[error("quorum reached after the validity had expired: {report}")]
    Expired {
        /// Report of the last completed attempt.
        report: Box<Report>,
    },
    /// The wait time passed before an attempt completed.
    #[error("timed out before an attempt completed{}", after_colon(report.as_deref()))]
    Timeout {
        /// Report of the interrupted attempt, if one had started.
        report: Option<Box<Report>>,
    },
    /// An attempt acquired the lock, but the future was not polled before the validity expired, so the lock was
    /// released. The nodes are not the cause. Poll the future more often, spawn it as its own task, or give it a longer
    /// [wait time](crate::Acquire::wait).
    #[error(
        "the acquired lock was released because the future was not polled before its validity expired: {report}"
    )]
    NotPolled {
        /// Report of the attempt whose lock was released.
        report: Box<Report>,
    },
    /// This client was too busy to contact a quorum of nodes in time. The nodes are not the cause. Acquire fewer locks
    /// concurrently, or use [`acquire`](crate::Redlock::acquire), which retries within its wait time.
    #[error("this client was too busy to contact a quorum of nodes in time{}", after_colon(report.as_deref()))]
    Overloaded {
        /// Report of the last completed attempt, if any.
        report: Option<Box<Report>>,
    },
    /// The client is closed.
    #[error("the client is closed")]
    Closed,
    /// No tokio runtime is available.
    #[error("no tokio runtime: call this inside a runtime, or pass one to Builder::runtime()")]
    NoRuntime,
    /// The tokio runtime was built without the I/O or the time driver.
    #[error("the tokio runtime has no {missing}: build it with enable_all()")]
    IncompleteRuntime {
        /// The missing driver.
        missing: RuntimeDriver,
    },
    /// The settings of this call are invalid.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
}

impl AcquireError {
    /// Replies of the nodes, if a request was sent.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::Contended { report, .. }
            | Self::NotHeld { report }
            | Self::NoQuorum { report }
            | Self::Expired { report }
            | Self::NotPolled { report } => Some(report),
            Self::Timeout { report } | Self::Overloaded { report } => report.as_deref(),
            Self::Closed | Self::NoRuntime | Self::IncompleteRuntime { .. } | Self::Invalid(_) => {
                None
            }
        }
    }
}

/// Why a lease was not extended.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// The lease has ended. Stop the protected work.
    #[error("the lease is lost ({reason}){}", after_colon(report.as_deref()))]
    Lost {
        /// How the lease ended.
        #[source]
        reason: Loss,
        /// Replies of the nodes, if a request was sent.
        report: Option<Box<Report>>,
    },
    /// The lease was released. A [view](crate::Lease::view) can observe that.
    #[error("the lease was released")]
    Released,
    /// Too few nodes confirmed the extension in time. The lease is valid for as long as before, and can be extended
    /// again.
    #[error("extension not confirmed by a quorum, still valid for {still_valid_for:?}: {report}")]
    NoQuorum {
        /// Remaining validity.
        still_valid_for: Duration,
        /// Replies of the nodes.
        report: Box<Report>,
    },
    /// The requested ttl is invalid.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
}

/// Why a lease was not reentered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReenterError {
    /// The lease has ended.
    #[error("the lease is lost ({reason})")]
    Lost {
        /// How the lease ended.
        #[source]
        reason: Loss,
    },
    /// The last guard of the lease was released.
    #[error("the lease was released")]
    Released,
}

/// Why an operation did not contact the nodes.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The client is closed.
    #[error("the client is closed")]
    Closed,
    /// No tokio runtime is available.
    #[error("no tokio runtime: call this inside a runtime, or pass one to Builder::runtime()")]
    NoRuntime,
    /// The tokio runtime was built without the I/O or the time driver.
    #[error("the tokio runtime has no {missing}: build it with enable_all()")]
    IncompleteRuntime {
        /// The missing driver.
        missing: RuntimeDriver,
    },
    /// The resource name is invalid.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
}

impl From<NoRuntime> for ClientError {
    fn from(reason: NoRuntime) -> Self {
        match reason {
            NoRuntime::Absent => Self::NoRuntime,
            NoRuntime::Lacks(missing) => Self::IncompleteRuntime { missing },
        }
    }
}

/// The release could not be confirmed. The lease has ended anyway: nodes that did not reply receive the release as soon
/// as possible, and the keys expire at the end of their TTL.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// Too few nodes confirmed the release in time.
    #[error("release not confirmed by a quorum: {report}")]
    NoQuorum {
        /// Replies of the nodes.
        report: Box<Report>,
    },
    /// The requested cool-down is too long. It was limited to `max_ttl`.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
}

/// A client was closed before all releases were delivered or all acquires had ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("closed before {}", remains(undelivered, *attempts))]
pub struct CloseError {
    undelivered: Vec<(String, usize)>,
    attempts: usize,
}

impl CloseError {
    pub(crate) fn new(undelivered: Vec<(Arc<str>, usize)>, attempts: usize) -> Self {
        let name = |(name, count): (Arc<str>, usize)| (name.to_string(), count);
        Self { undelivered: undelivered.into_iter().map(name).collect(), attempts }
    }

    /// Nodes with pending releases: address and number of releases. Their keys expire by themselves.
    pub fn undelivered(&self) -> &[(String, usize)] {
        &self.undelivered
    }

    /// Number of acquires that have not ended. Their locks are released when their futures are polled or dropped, or
    /// else expire.
    pub fn attempts(&self) -> usize {
        self.attempts
    }
}

// Makes `Loss` available through `source()`.
impl std::error::Error for Loss {}

fn whom(here: bool) -> &'static str {
    if here { "another lease of this client" } else { "another client" }
}

fn remains(undelivered: &[(String, usize)], attempts: usize) -> String {
    let each = undelivered.iter().map(|(node, count)| format!("{node} ({count})"));
    let pending = each.collect::<Vec<_>>().join(", ");
    let pending = format!("all releases were delivered; pending: {pending}");
    let open = format!("all acquires ended (neither polled nor dropped: {attempts})");
    match (undelivered.is_empty(), attempts) {
        (_, 0) => pending,
        (true, _) => open,
        (false, _) => format!("{pending}; and before {open}"),
    }
}

fn after_colon(report: Option<&Report>) -> String {
    report.map_or_else(String::new, |report| format!(": {report}"))
}
