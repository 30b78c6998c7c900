//! The outcomes and errors of scheduled jobs.

use super::using::UsingError;
use crate::error::{AcquireError, ConfigError, ReleaseError};
use crate::lease::ReleaseOutcome;
use crate::observe::{Holder, Report};
use crate::protocol::Loss;
use std::time::Duration;
use thiserror::Error;

/// The outcome of a call of [`ScheduledJob::run`](crate::ScheduledJob::run) that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a skipped job has not run on this machine"]
pub enum JobOutcome<T> {
    /// This machine ran the job. The field is the return value of the work.
    Ran(T),
    /// This machine did not run the job.
    Skipped {
        /// If `since` is set: the client that has taken the period, without a TTL. `None` if this client uses a version
        /// of this library that stores no record.
        ///
        /// If `since` is `None`: the client that holds the job's lock, if this was found. It runs the job, or the lock is
        /// [cooling down](Holder::is_cooling_down).
        holder: Option<Holder>,
        /// Time since a call has taken this period, or a later one. With
        /// [`take_over`](crate::ScheduledJob::take_over), its job has run. Without it, its job was started, or its client
        /// has ended before.
        ///
        /// `None` if no call has taken the period: another client held the lock until the [wait
        /// time](crate::ScheduledJob::wait) had passed, or the lock was cooling down.
        since: Option<Duration>,
    },
}

/// A call that did not run the job; see [`JobOutcome::Skipped`].
pub(crate) struct SkippedJob {
    pub(super) holder: Option<Holder>,
    pub(super) since: Option<Duration>,
}

/// Error returned by [`ScheduledJob::run`](crate::ScheduledJob::run) and its variants. If the work finished, the error
/// contains its output.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JobError<T> {
    /// The lock was not acquired, so the job was not started. [`Contended`](AcquireError::Contended) does not occur,
    /// because such a call is skipped.
    #[error(transparent)]
    NotAcquired(#[from] AcquireError),
    /// Too few nodes replied to determine whether another call has taken the period, so the job was not started. Without
    /// [`take_over`](crate::ScheduledJob::take_over), some nodes may have stored the period's number for this call. In
    /// this case, later calls in the period are skipped.
    #[error("not started, unknown whether another call has taken this period: {report}")]
    Undecided {
        /// The nodes' replies.
        report: Box<Report>,
    },
    /// The lease was lost while the work was running, or before it started. The work did not finish: its future was
    /// dropped. Without [`take_over`](crate::ScheduledJob::take_over), this call has taken the period.
    #[error("the lease was lost during the job: {reason}")]
    Lost {
        /// Reason why the lease was lost.
        #[source]
        reason: Loss,
    },
    /// The work finished, but the lease had already ended. With [`take_over`](crate::ScheduledJob::take_over), another
    /// machine may have run the job at the same time.
    #[error("the job finished after the lease had ended ({})", as_display(found))]
    Overrun {
        /// Return value of the work.
        output: T,
        /// Result of the release, or an error if too few nodes confirmed the release.
        found: Result<ReleaseOutcome, ReleaseError>,
    },
    /// The work finished, but too few nodes confirmed the period's number afterwards, or the client was closed before.
    /// Another machine may run the job again in this period. Only with [`take_over`](crate::ScheduledJob::take_over).
    #[error(
        "the job has run, but it may run again in this period, because no quorum confirmed its number: {report}"
    )]
    NotCommitted {
        /// Return value of the work.
        output: T,
        /// The nodes' replies.
        report: Box<Report>,
    },
}

impl<T> JobOutcome<T> {
    /// Returns true for [`Skipped`](Self::Skipped).
    pub const fn is_skipped(&self) -> bool {
        matches!(self, Self::Skipped { .. })
    }

    /// Returns the output of the work, or `None` if the job was skipped.
    pub fn ran(self) -> Option<T> {
        if let Self::Ran(output) = self { Some(output) } else { None }
    }
}

impl SkippedJob {
    pub(crate) fn into_outcome<T>(self) -> JobOutcome<T> {
        let Self { holder, since } = self;
        JobOutcome::Skipped { holder, since }
    }
}

impl<T> JobError<T> {
    /// Returns the report in the error, or `None` if the error has no report.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::NotAcquired(error) => error.report(),
            Self::Undecided { report } | Self::NotCommitted { report, .. } => Some(report),
            Self::Overrun { found: Err(error), .. } => error.report(),
            Self::Overrun { .. } | Self::Lost { .. } => None,
        }
    }

    /// Returns the output of the work if it finished.
    pub fn into_output(self) -> Option<T> {
        match self {
            Self::Overrun { output, .. } | Self::NotCommitted { output, .. } => Some(output),
            Self::NotAcquired(_) | Self::Undecided { .. } | Self::Lost { .. } => None,
        }
    }
}

impl<T> From<ConfigError> for JobError<T> {
    fn from(error: ConfigError) -> Self {
        Self::NotAcquired(error.into())
    }
}

impl<T> From<UsingError<T>> for JobError<T> {
    fn from(error: UsingError<T>) -> Self {
        match error {
            UsingError::NotAcquired(error) => Self::NotAcquired(error),
            UsingError::Lost { reason } => Self::Lost { reason },
            UsingError::Overrun { output, found } => Self::Overrun { output, found },
        }
    }
}

fn as_display(found: &Result<ReleaseOutcome, ReleaseError>) -> &dyn std::fmt::Display {
    match found {
        Ok(outcome) => outcome,
        Err(error) => error,
    }
}
