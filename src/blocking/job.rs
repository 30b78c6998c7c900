//! [`ScheduledJob`]: the blocking form of a job that runs once per period.

use super::error::{Error, flatten_result};
use super::lease::Lease;
use super::waiting::{CloseOnDrop, wait, wait_here};
use crate::client::{JobError, JobOutcome};
use crate::error::ReenterError;
use crate::protocol::{Loss, RetryPolicy};
use std::sync::Arc;
use std::time::Duration;

/// The name of a scheduled job, whose period is not set yet; see [`Once`](crate::Once).
#[derive(Clone, Debug)]
#[must_use = "nothing runs until run() is called"]
pub struct Once {
    inner: crate::Once,
    client: Arc<CloseOnDrop>,
}

/// A scheduled job that runs on one of many machines, once per period; see
/// [`ScheduledJob`](crate::ScheduledJob). [`Redlock::once`](super::Redlock::once) and
/// [`Once::every`] create it.
#[derive(Clone, Debug)]
#[must_use = "nothing runs until run() is called"]
pub struct ScheduledJob {
    inner: crate::ScheduledJob,
    client: Arc<CloseOnDrop>,
}

impl Once {
    pub(super) fn new(inner: crate::Once, client: Arc<CloseOnDrop>) -> Self {
        Self { inner, client }
    }

    /// Sets the period of the job; see [`Once::every`](crate::Once::every).
    pub fn every(self, period: Duration) -> ScheduledJob {
        ScheduledJob { inner: self.inner.every(period), client: self.client }
    }
}

macro_rules! settings {
    ($($(#[$summary:meta])* $name:ident($($argument:ident: $type:ty)?);)*) => {$(
        $(#[$summary])*
        #[doc = ""]
        #[doc = concat!("See [`ScheduledJob::", stringify!($name), "`](crate::ScheduledJob::", stringify!($name), ").")]
        pub fn $name(self $(, $argument: $type)?) -> Self {
            Self { inner: self.inner.$name($($argument)?), ..self }
        }
    )*};
}

impl ScheduledJob {
    settings! {
        /// Takes the period after the job instead of before it.
        take_over();
        /// Moves the beginning of all periods by `offset`.
        offset(offset: Duration);
        /// Keeps the lock for at least `time`.
        at_least(time: Duration);
        /// Limits the duration of the job. After `time`, the lease is lost.
        at_most(time: Duration);
        /// Sets how long a call waits if another client holds the lock and the period is not taken.
        wait(wait: Duration);
        /// Sets the delays between the attempts of a call that waits.
        retry(policy: RetryPolicy);
        /// Sets the TTL of the lock, which is renewed while the job runs.
        ttl(ttl: Duration);
        /// Sets the text that is stored with the lock while the job runs.
        metadata(metadata: impl Into<String>);
        /// Gives the lease a fencing token.
        fenced();
        /// Disables fencing tokens, if the client's settings enable them.
        without_fencing();
        /// Sets the class of the lock for events and metrics.
        class(class: &'static str);
    }

    /// Runs `work` if no call on any machine has taken the current period; see
    /// [`ScheduledJob::run`](crate::ScheduledJob::run). If the lease is lost, the work is not
    /// stopped, but it can check [`is_valid`](crate::LeaseRef::is_valid).
    ///
    /// # Errors
    /// Returns [`InsideRuntime`](Error::InsideRuntime) if called on a thread that is polling an
    /// async task, without running the work. For all other errors, see [`JobError`].
    pub fn run<T>(
        &self,
        work: impl FnOnce(&Lease) -> T,
    ) -> Result<JobOutcome<T>, Error<JobError<T>>> {
        self.run_counted(work, |_| true)
    }

    /// Runs `work`, which returns a `Result`; see
    /// [`ScheduledJob::try_run`](crate::ScheduledJob::try_run).
    ///
    /// # Errors
    /// See [`run`](Self::run). An error of the work is part of the output.
    #[allow(clippy::type_complexity)] // The same type as that of `run`.
    pub fn try_run<T, E>(
        &self,
        work: impl FnOnce(&Lease) -> Result<T, E>,
    ) -> Result<JobOutcome<Result<T, E>>, Error<JobError<Result<T, E>>>> {
        self.run_counted(work, Result::is_ok)
    }

    fn run_counted<T>(
        &self,
        work: impl FnOnce(&Lease) -> T,
        counts: impl FnOnce(&T) -> bool,
    ) -> Result<JobOutcome<T>, Error<JobError<T>>> {
        let job = match flatten_result(wait(self.inner.begin()))? {
            Ok(job) => job,
            Err(skipped) => return Ok(skipped.into_outcome()),
        };
        // A second guard: the job needs the first one to commit the number under the lock.
        let output = match job.lease().reenter() {
            Ok(guard) => Ok(work(&Lease::new(guard, self.client.clone()))),
            Err(ReenterError::Lost { reason }) => Err(reason),
            Err(_) => Err(Loss::Closed),
        };
        // `wait` has already checked that this thread can block.
        Ok(wait_here(job.end(output, counts))?)
    }
}
