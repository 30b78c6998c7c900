//! What can go wrong, one small enum per operation. Each reason says what it is and, where the
//! caller can do something about it, what to do.
//!
//! Here live the errors that users see, and what they tell of themselves. Nothing is decided here.

mod config;
mod kind;

pub use config::ConfigError;

use crate::node::{NoRuntime, RuntimeDriver};
use crate::observe::Report;
use crate::protocol::Loss;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

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
    /// The lock could have been had, but this future was not polled for so long that its time ended:
    /// what it had won was given up. Nothing is wrong with the nodes. Poll it more often, spawn it as
    /// a task of its own, or give it a longer [wait bound](crate::Acquire::wait).
    #[error("this future was not polled in time, and what it had won was given up: {report}")]
    NotPolled {
        /// What the nodes said to the attempt that was given up.
        report: Box<Report>,
    },
    /// This client has so much under way, or gets so little of the machine, that too few nodes could be
    /// asked in time. Nothing is wrong with the nodes. Ask for fewer locks at once, or wait for them: [`acquire`](crate::Redlock::acquire)
    /// tries again within its wait bound.
    #[error("this client is overloaded, too few nodes could be asked in time{}", after_colon(report.as_deref()))]
    Overloaded {
        /// The last round that was decided, if there was one.
        report: Option<Box<Report>>,
    },
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
    /// There is no tokio runtime to run on.
    #[error("no tokio runtime: call this inside one, or give the builder one with runtime()")]
    NoRuntime,
    /// The tokio runtime to run on was built without I/O or without timers.
    #[error("the tokio runtime has no {missing}: build it with enable_all()")]
    IncompleteRuntime {
        /// What it lacks.
        missing: RuntimeDriver,
    },
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
    /// The lease has ended, and stays ended. Stop what it protected.
    #[error("the lease is lost ({reason}){}", after_colon(report.as_deref()))]
    Lost {
        /// How it ended.
        #[source]
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
        #[source]
        reason: Loss,
    },
    /// Its last guard has released it.
    #[error("the lease was released")]
    Released,
}

/// Why the nodes were not asked.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
    /// There is no tokio runtime to run on.
    #[error("no tokio runtime: call this inside one, or give the builder one with runtime()")]
    NoRuntime,
    /// The tokio runtime to run on was built without I/O or without timers.
    #[error("the tokio runtime has no {missing}: build it with enable_all()")]
    IncompleteRuntime {
        /// What it lacks.
        missing: RuntimeDriver,
    },
    /// The resource cannot be locked, so nobody has it.
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
    /// The cool-down asked for is too long: the lock is left standing for the longest that is allowed.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
}

/// What could not be delivered before a client was closed.
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

    /// The nodes that are still owed releases, by address, and how many. They expire by themselves.
    pub fn undelivered(&self) -> &[(String, usize)] {
        &self.undelivered
    }

    /// How many attempts to acquire are still under way. What they won is released when their futures
    /// are polled or dropped, and at the latest it expires.
    pub fn attempts(&self) -> usize {
        self.attempts
    }
}

// The protocol knows of no errors; a program that follows `source()` does.
impl std::error::Error for Loss {}

fn whom(here: bool) -> &'static str {
    if here { "another lease of this client" } else { "another" }
}

fn remains(undelivered: &[(String, usize)], attempts: usize) -> String {
    let each = undelivered.iter().map(|(node, count)| format!("{node} ({count})"));
    let owed = each.collect::<Vec<_>>().join(", ");
    let owed = format!("all releases were delivered; still owed: {owed}");
    let open = format!("attempts to acquire ended; neither polled nor dropped: {attempts}");
    match (undelivered.is_empty(), attempts) {
        (_, 0) => owed,
        (true, _) => open,
        (false, _) => format!("{owed}; and before {open}"),
    }
}

fn after_colon(report: Option<&Report>) -> String {
    report.map_or_else(String::new, |report| format!(": {report}"))
}
