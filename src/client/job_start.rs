//! The start of a scheduled job: the check of the period, the lock, and the commit of the period's number.

use super::acquire::Acquire;
use super::job_result::{JobError, JobOutcome};
use super::once::ScheduledJob;
use super::started_job::{JobCounter, StartedJob};
use crate::coordinator::PeriodRequest;
use crate::error::{AcquireError, ConfigError};
use crate::lease::Lease;
use crate::node::Unready;
use crate::observe::event::Event;
use crate::observe::{AcquireTag, EventLevel, Holder, Report, escape_name};
use crate::protocol::{PeriodState, counter_ttl, period_number};
use crate::wire::{Keys, PeriodStep, period_key};
use std::time::Duration;

const MIN_PERIOD: Duration = Duration::from_secs(1);
const MAX_PERIOD: Duration = Duration::from_secs(30 * 24 * 60 * 60);

pub(crate) struct SkippedJob {
    holder: Option<Holder>,
    since: Option<Duration>,
}

type Begun = Result<StartedJob, SkippedJob>;

enum Attempt<T> {
    Ended(Result<Begun, JobError<T>>),
    /// Another attempt can succeed. Contains the result of the call if no time is left.
    Undecided(Result<Begun, JobError<T>>),
}

impl SkippedJob {
    pub(crate) fn into_outcome<T>(self) -> JobOutcome<T> {
        let Self { holder, since } = self;
        JobOutcome::Skipped { holder, since }
    }
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
        let number = period_number(clock.wall_us(), self.period, self.offset);
        let counter = job.counter(number)?;
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
            clock.sleep_until(again).await;
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

    fn counter(&self, number: u64) -> Result<JobCounter, ConfigError> {
        let key = self.client.settings.key(self.name.clone())?;
        let counter = period_key(&key);
        let counter =
            counter.ok_or_else(|| ConfigError::BadJob { name: escape_name(&self.name) })?;
        let ttl = counter_ttl(self.period).ok_or(ConfigError::BadPeriod { period: self.period })?;
        let (counter, step) = (Keys::one(counter), PeriodStep::Check);
        let request = PeriodRequest { counter, number, ttl, step };
        Ok(JobCounter { client: self.client.clone(), request })
    }

    async fn attempt<T>(&self, counter: &JobCounter, left: Duration) -> Attempt<T> {
        match counter.check().await {
            (PeriodState::Open, _) => {}
            (PeriodState::Done { remaining, .. }, _) => {
                let since = counter.since(remaining);
                return Attempt::Ended(Ok(Err(SkippedJob { holder: None, since })));
            }
            (PeriodState::Unknown, report) => {
                return Attempt::Undecided(Err(JobError::Undecided { report }));
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
        let (state, report) = if self.takes_over {
            counter.check().await
        } else {
            counter.send(PeriodStep::Begin).await
        };
        let (counter, commits_after) = (counter.clone(), self.takes_over);
        Attempt::Ended(match state {
            PeriodState::Open => Ok(Ok(StartedJob { lease, counter, commits_after })),
            PeriodState::Done { remaining, .. } => {
                Ok(Err(SkippedJob { holder: None, since: counter.since(remaining) }))
            }
            // Nodes may have stored the number, so another attempt would take this one for a run.
            PeriodState::Unknown if !self.takes_over => Err(JobError::Undecided { report }),
            PeriodState::Unknown => {
                return Attempt::Undecided(Err(JobError::Undecided { report }));
            }
        })
    }
}

/// Returns true if cool-downs alone prevent a quorum.
fn is_cooling_down(report: &Report) -> bool {
    let cooling =
        report.nodes().iter().filter_map(|node| node.holder()).filter(|it| it.is_cooling_down());
    report.nodes().len() < cooling.count() + report.needed()
}
