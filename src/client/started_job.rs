//! A scheduled job that has started: its lease, and the commit of the period's number.

use super::job_counter::JobCounter;
use super::job_result::{JobError, JobOutcome};
use super::using::work_result;
use crate::lease::Lease;
use crate::protocol::{Loss, PeriodState};
use crate::wire::PeriodStep;
use std::fmt;

/// A job that runs on this machine in the current period, and its lease. Returned by
/// [`ScheduledJob::start`](crate::ScheduledJob::start).
///
/// Dropping it releases the lock in the background. With [`take_over`](crate::ScheduledJob::take_over), the period is then
/// not taken, so the next call runs the job again in this period.
#[must_use = "the lock is released when the job is dropped"]
pub struct StartedJob {
    pub(super) lease: Lease,
    pub(super) counter: JobCounter,
    pub(super) commits_after: bool,
}

impl StartedJob {
    /// Returns the lease of the job's lock, which is renewed until this value is finished or dropped.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Releases the lock without committing the period's number, unless it is committed already.
    pub fn into_lease(self) -> Lease {
        self.lease
    }

    /// Ends the job. With [`take_over`](crate::ScheduledJob::take_over), first commits the period's number, so that the
    /// job does not run again in this period. Then releases the lock.
    ///
    /// Takes at most two node timeouts. If too few nodes confirm the number in the first one, repeats the commit until
    /// the validity that the lease has at this time has passed.
    ///
    /// # Errors
    /// - [`Overrun`](JobError::Overrun): the lease had already ended.
    /// - [`NotCommitted`](JobError::NotCommitted): too few nodes confirmed the number, or the client was closed before.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock is released in the background. The number may not be committed.
    pub async fn finish(self) -> Result<(), JobError<()>> {
        self.end(Ok(()), |()| true).await.map(|_| ())
    }

    /// Commits the period's number if the job commits it after the work and `counts` returns true for the work's output.
    /// Then releases the lock.
    pub(crate) async fn end<T>(
        self,
        done: Result<T, Loss>,
        counts: impl FnOnce(&T) -> bool,
    ) -> Result<JobOutcome<T>, JobError<T>> {
        let output = done.map_err(|reason| JobError::Lost { reason })?;
        let was_valid = self.lease.is_valid();
        let mut uncommitted = None;
        if self.commits_after && counts(&output) {
            // Before the release, so that no other machine starts the job before this period is done.
            uncommitted = match self.counter.commit(PeriodStep::Finish, &self.lease).await {
                Ok(reply) => (reply.state != PeriodState::Open).then_some(reply.report),
                Err(_closed) => Some(Box::new(self.counter.no_report())),
            };
        }
        let result = work_result(output, was_valid, self.lease.release().await);
        match (result.map_err(JobError::from), uncommitted) {
            (Ok(output) | Err(JobError::Overrun { output, .. }), Some(report)) => {
                Err(JobError::NotCommitted { output, report })
            }
            (result, _) => result.map(JobOutcome::Ran),
        }
    }
}

impl fmt::Debug for StartedJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartedJob").field("lease", &self.lease).finish_non_exhaustive()
    }
}
