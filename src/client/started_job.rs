//! A scheduled job that has started: its lease, and the commit of the period's number.

use super::inner::Inner;
use super::job_result::{JobError, JobOutcome};
use super::using::work_result;
use crate::coordinator::PeriodRequest;
use crate::lease::Lease;
use crate::observe::Report;
use crate::protocol::{Loss, PeriodState};
use crate::wire::PeriodStep;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A job that runs on this machine in the current period, and its lease. Returned by
/// [`ScheduledJob::start`](crate::ScheduledJob::start).
///
/// Dropping it releases the lock in the background. With [`take_over`](crate::ScheduledJob::take_over), the period's
/// number is then not committed, so the next call runs the job again in this period.
#[must_use = "the lock is released when the job is dropped"]
pub struct StartedJob {
    pub(super) lease: Lease,
    pub(super) counter: JobCounter,
    pub(super) commits_after: bool,
}

/// The counter of a job, with the number of the current period.
#[derive(Clone)]
pub(super) struct JobCounter {
    pub(super) client: Arc<Inner>,
    /// The request of a [check](PeriodStep::Check).
    pub(super) request: PeriodRequest,
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
    /// job does not run again in this period. Then releases the lock. Takes at most two node timeouts.
    ///
    /// # Errors
    /// - [`Overrun`](JobError::Overrun): the lease had already ended.
    /// - [`NotCommitted`](JobError::NotCommitted): too few nodes confirmed the number.
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
            let (state, report) = self.counter.send(PeriodStep::Finish).await;
            uncommitted = Some(report).filter(|_| state != PeriodState::Open);
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

impl JobCounter {
    /// Returns whether the period is done. If it is, restores the counter on nodes that have lost it, so that such
    /// losses do not add up to a majority.
    pub(super) async fn check(&self) -> (PeriodState, Box<Report>) {
        let (state, report) = self.send(PeriodStep::Check).await;
        if matches!(state, PeriodState::Done { is_partial: true, .. }) {
            self.send(PeriodStep::Finish).await;
        }
        (state, report)
    }

    pub(super) async fn send(&self, step: PeriodStep) -> (PeriodState, Box<Report>) {
        let request = PeriodRequest { step, ..self.request.clone() };
        let needed = self.client.backing.quorum.needed();
        let unknown = || (PeriodState::Unknown, Report::new(needed, Arc::new([])));
        let (state, report) = self.client.driver.period(request).await.unwrap_or_else(unknown);
        (state, Box::new(report))
    }

    /// Returns the age of a counter with this remaining TTL.
    pub(super) fn since(&self, remaining: Option<Duration>) -> Option<Duration> {
        Some(self.request.ttl.as_duration().saturating_sub(remaining?))
    }
}
