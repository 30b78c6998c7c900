//! The start of a scheduled job: the check of the period, the lock, and the commit of the period's number.

use super::acquire::Acquire;
use super::job_counter::JobCounter;
use super::job_result::{JobError, SkippedJob};
use super::once::ScheduledJob;
use super::started_job::StartedJob;
use crate::error::{AcquireError, ConfigError};
use crate::lease::Lease;
use crate::node::Unready;
use crate::observe::event::Event;
use crate::observe::{AcquireTag, EventLevel, Report};
use crate::protocol::PeriodState;
use crate::wire::{Keys, PeriodStep};
use std::time::Duration;

const MIN_PERIOD: Duration = Duration::from_secs(1);
const MAX_PERIOD: Duration = Duration::from_secs(30 * 24 * 60 * 60);

type Begun = Result<StartedJob, SkippedJob>;

enum Attempt<T> {
    Ended(Result<Begun, JobError<T>>),
    /// Another attempt can succeed. Contains the result of the call if no time is left.
    Undecided(Result<Begun, JobError<T>>),
}

impl ScheduledJob {
    /// Determines the period and makes attempts until the job may run, or must be skipped.
    pub(crate) async fn begin<T>(&self) -> Result<Begun, JobError<T>> {
        let job = self.checked()?;
        let inner = &self.client;
        inner.driver.check_ready().map_err(|unready| match unready {
            Unready::Closed => AcquireError::Closed,
            Unready::NoRuntime(reason) => AcquireError::NoRuntime { reason },
        })?;
        let (clock, random) = (inner.backing.clock(), inner.backing.pool.random());
        let counter = JobCounter::new(&job, clock.wall_us())?;
        let deadline = clock.now().after(self.options.wait.unwrap_or_default());
        let mut delays = self.options.retry.schedule();
        // A client that was just created connects first. An error is reported by the attempt.
        let _ =
            clock.timeout(inner.settings.connect_timeout, inner.driver.wait_until_ready()).await;
        loop {
            let left = deadline.since(clock.now());
            let result = match job.attempt(&counter, left).await {
                Attempt::Ended(result) => return result,
                Attempt::Undecided(result) => result,
            };
            if let Err(JobError::Undecided { report }) = &result {
                self.emit_undecided(report)?;
            }
            let now = clock.now();
            let again = delays.next_delay(random.number()).map(|delay| now.after(delay));
            let Some(again) = again.filter(|again| *again < deadline) else { return result };
            inner.sleep_until(again).await;
        }
    }

    /// Validates the settings. Returns the job with a ttl that covers `at_least`.
    fn checked(&self) -> Result<Self, ConfigError> {
        let Self { period, offset, .. } = *self;
        let (limits, at_least) = (self.client.settings.limits, self.options.at_least);
        if !(MIN_PERIOD..=MAX_PERIOD).contains(&period) {
            return Err(ConfigError::BadPeriod { period });
        }
        if offset >= period {
            return Err(ConfigError::BadOffset { offset, period });
        }
        let limit = period.min(limits.max_ttl);
        if at_least > limit {
            return Err(ConfigError::AtLeastTooLong { at_least, limit });
        }
        let mut job = self.clone();
        job.options.ttl = job.options.ttl.max(at_least);
        job.options.check(&limits)?;
        Ok(job)
    }

    async fn attempt<T>(&self, counter: &JobCounter, left: Duration) -> Attempt<T> {
        let reply = match counter.check().await {
            Ok(reply) => reply,
            Err(closed) => return Attempt::Ended(Err(closed.into())),
        };
        match reply.state {
            PeriodState::Open => {}
            PeriodState::Taken { .. } => return Attempt::Ended(Ok(Err(counter.skipped(&reply)))),
            PeriodState::Unknown => {
                return Attempt::Undecided(Err(JobError::Undecided { report: reply.report }));
            }
        }
        match self.acquire(left).await {
            Ok(lease) => self.claim(counter, lease).await,
            Err(AcquireError::Contended { report, .. }) => {
                let holder = report.nodes().iter().find_map(|node| node.holder().cloned());
                let skipped = Ok(Err(SkippedJob { holder, since: None }));
                let is_decided = is_cooling_down(&report);
                if is_decided { Attempt::Ended(skipped) } else { Attempt::Undecided(skipped) }
            }
            Err(error) if error.is_unavailable() => Attempt::Undecided(Err(error.into())),
            Err(error) => Attempt::Ended(Err(error.into())),
        }
    }

    fn emit_undecided(&self, report: &Report) -> Result<(), ConfigError> {
        let settings = &self.client.settings;
        let (tag, key) =
            (AcquireTag { id: 0, class: self.options.class }, settings.key(self.name.clone())?);
        self.client.backing.pool.observers().emit(EventLevel::Debug, || Event::JobUndecided {
            lock: tag.lock(&Keys::one(key), settings.prefix.len()),
            report: report.clone(),
        });
        Ok(())
    }

    /// Makes one attempt to acquire the lock, which reads the holder if the lock is held.
    fn acquire(&self, left: Duration) -> Acquire {
        let shortest = self.client.settings.connect_timeout;
        let mut options = self.options.clone();
        options.retry = options.retry.limit(0);
        options.wait = Some(left.max(shortest));
        Acquire::one(self.client.clone(), &self.name).with_options(options).renewed()
    }

    /// Decides under the lock whether the job runs. Without `take_over`, also commits the period's number.
    async fn claim<T>(&self, counter: &JobCounter, lease: Lease) -> Attempt<T> {
        let reply = if self.takes_over {
            counter.check().await
        } else {
            counter.commit(PeriodStep::Begin, &lease).await
        };
        let reply = match reply {
            Ok(reply) => reply,
            Err(closed) => return Attempt::Ended(Err(closed.into())),
        };
        match reply.state {
            PeriodState::Open => {
                // The lease can end during a commit.
                let lost = lease.loss();
                let (counter, commits_after) = (counter.clone(), self.takes_over);
                let started = StartedJob { lease, counter, commits_after };
                let result = lost.map_or(Ok(Ok(started)), |reason| Err(JobError::Lost { reason }));
                Attempt::Ended(result)
            }
            PeriodState::Taken { .. } => Attempt::Ended(Ok(Err(counter.skipped(&reply)))),
            PeriodState::Unknown => {
                let result = Err(JobError::Undecided { report: reply.report });
                // Nodes may have stored the number for this call, and would deny it to another attempt.
                if self.takes_over { Attempt::Undecided(result) } else { Attempt::Ended(result) }
            }
        }
    }
}

/// Returns true if cool-downs alone prevent a quorum.
fn is_cooling_down(report: &Report) -> bool {
    let cooling =
        report.nodes().iter().filter_map(|node| node.holder()).filter(|it| it.is_cooling_down());
    report.nodes().len() < cooling.count() + report.needed()
}
