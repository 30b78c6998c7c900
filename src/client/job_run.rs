//! Runs scheduled jobs, and drops them if their lease is lost.

use super::job_result::{JobError, JobOutcome, SkippedJob};
use super::once::ScheduledJob;
use super::started_job::StartedJob;
use super::using::race;
use crate::lease::{Lease, LeaseRef};

impl ScheduledJob {
    /// Starts the job if no call has taken the current period, for work that is not a future: the caller does the work
    /// and then calls [`finish`](StartedJob::finish). Unlike [`run`](Self::run), this method does not stop the work if
    /// the lease is lost: check [`is_valid`](LeaseRef::is_valid), or await [`lost`](LeaseRef::lost).
    ///
    /// # Errors
    /// See [`JobError`].
    ///
    /// # Cancel safety
    /// See [`run`](Self::run).
    pub async fn start(&self) -> Result<JobOutcome<StartedJob>, JobError<()>> {
        Ok(self.begin().await?.map_or_else(SkippedJob::into_outcome, JobOutcome::Ran))
    }

    /// Runs `work` if no call on any machine has taken the current period. Otherwise, returns
    /// [`Skipped`](JobOutcome::Skipped) at once. The period is determined once, when this future is first polled.
    ///
    /// The lease is renewed until the work ends. If the lease is lost, the work's future is dropped. If another client
    /// holds the lock, the call repeats its attempt until the period is taken, the lock is free, or the [wait
    /// time](Self::wait) has passed. Apart from these waits and the work, a call takes at most one [connect
    /// timeout](crate::Builder::connect_timeout) for a client that is not connected yet, and about five node timeouts.
    /// If a quorum does not confirm the period's number within a node timeout, the call repeats the commit until the
    /// validity of the lease has passed.
    ///
    /// A work that returns an error has run. See [`try_run`](Self::try_run) for work whose failure does not count.
    ///
    /// # Errors
    /// See [`JobError`]. If the work finished, the error contains its output.
    ///
    /// # Cancel safety
    /// If the future is dropped, the work is dropped too, and the lock is released in the background. The number may
    /// already be committed: without [`take_over`](Self::take_over), the job does not run again in this period.
    pub async fn run<T, F>(&self, work: F) -> Result<JobOutcome<T>, JobError<T>>
    where
        F: AsyncFnOnce(&Lease) -> T,
    {
        match self.begin().await? {
            Ok(job) => {
                let done = {
                    let working = work(job.lease());
                    race(working, job.lease()).await
                };
                job.end(done, |_| true).await
            }
            Err(skipped) => Ok(skipped.into_outcome()),
        }
    }

    /// Runs the future that `work` returns if no call has taken the current period; see [`run`](Self::run). Use
    /// this method in generic code, or if the future of an async closure does not satisfy a `Send` bound.
    ///
    /// # Errors
    /// See [`JobError`]. If the work finished, the error contains its output.
    ///
    /// # Cancel safety
    /// See [`run`](Self::run).
    pub async fn run_fut<F, Fut>(
        &self,
        work: F,
    ) -> Result<JobOutcome<Fut::Output>, JobError<Fut::Output>>
    where
        F: FnOnce(LeaseRef) -> Fut,
        Fut: Future,
    {
        match self.begin().await? {
            Ok(job) => {
                let done = race(work(job.lease().view()), job.lease()).await;
                job.end(done, |_| true).await
            }
            Err(skipped) => Ok(skipped.into_outcome()),
        }
    }

    /// Runs `work`, which returns a `Result`; see [`run`](Self::run). With [`take_over`](Self::take_over), the number is
    /// not committed if the work returns an error, so the next call runs the job again in the same period. Without it,
    /// this method is the same as `run`, because the number is committed before the work.
    ///
    /// # Errors
    /// See [`JobError`]. An error of the work is part of the output.
    ///
    /// # Cancel safety
    /// See [`run`](Self::run).
    #[allow(clippy::type_complexity)] // Same type as that of `run`, with a `Result` as output.
    pub async fn try_run<T, E, F>(
        &self,
        work: F,
    ) -> Result<JobOutcome<Result<T, E>>, JobError<Result<T, E>>>
    where
        F: AsyncFnOnce(&Lease) -> Result<T, E>,
    {
        match self.begin().await? {
            Ok(job) => {
                let done = {
                    let working = work(job.lease());
                    race(working, job.lease()).await
                };
                job.end(done, Result::is_ok).await
            }
            Err(skipped) => Ok(skipped.into_outcome()),
        }
    }

    /// Runs the fallible future that `work` returns; see [`try_run`](Self::try_run) and [`run_fut`](Self::run_fut).
    ///
    /// # Errors
    /// See [`JobError`]. An error of the work is part of the output.
    ///
    /// # Cancel safety
    /// See [`run`](Self::run).
    #[allow(clippy::type_complexity)] // Same type as that of `run`, with a `Result` as output.
    pub async fn try_run_fut<T, E, F, Fut>(
        &self,
        work: F,
    ) -> Result<JobOutcome<Result<T, E>>, JobError<Result<T, E>>>
    where
        F: FnOnce(LeaseRef) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        match self.begin().await? {
            Ok(job) => {
                let done = race(work(job.lease().view()), job.lease()).await;
                job.end(done, Result::is_ok).await
            }
            Err(skipped) => Ok(skipped.into_outcome()),
        }
    }
}
