//! How a task acquires and releases each kind of target.

use crate::choice::Choice;
use crate::line::{ClientMessage, Sabotage};
use crate::resources::{Semaphore, name, takes_over};
use crate::target::Target;
use crate::task::Task;
use quorlock::{
    AcquireError, ConfigError, JobError, JobOutcome, Lease, LeaseRef, ReleaseError, ReleaseOutcome,
    StartedJob,
};
use std::future::poll_fn;
use std::pin::pin;
use std::time::{Duration, SystemTime};

/// The period of all jobs: the shortest one. It ends before a restarted node counts again, so lost
/// counters can hardly repeat a run.
const PERIOD: Duration = Duration::from_secs(1);
/// The library's default, and thus the longest time that an acquire waits for a new connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a task without a wait limit campaigns.
const SHORT_CAMPAIGN: Duration = Duration::from_millis(50);

/// A lease, or a job that has started and has a lease.
pub(crate) enum Grant {
    Lease(Lease),
    Job {
        job: StartedJob,
        /// See [`Hold::period`](crate::record::Hold::period).
        period: Option<u64>,
    },
}

impl Grant {
    pub(crate) fn lease(&self) -> &LeaseRef {
        match self {
            Self::Lease(lease) => lease,
            Self::Job { job, .. } => job.lease(),
        }
    }

    pub(crate) fn period(&self) -> Option<u64> {
        match self {
            Self::Lease(_) => None,
            Self::Job { period, .. } => *period,
        }
    }

    /// Returns the maximum duration of [`release`](Self::release).
    pub(crate) fn release_bound(&self, node_timeout: Duration) -> Duration {
        match self {
            Self::Lease(_) => node_timeout,
            Self::Job { .. } => 2 * node_timeout,
        }
    }

    /// Releases the lease, or finishes the job. If the outcome is unknown, returns the reason.
    pub(crate) async fn release(self) -> Result<ReleaseOutcome, &'static str> {
        let released = match self {
            Self::Lease(lease) => lease.release().await,
            Self::Job { job, .. } => match job.finish().await {
                Ok(()) => Ok(ReleaseOutcome::Released),
                Err(JobError::Overrun { found, .. }) => found,
                Err(JobError::NotCommitted { .. }) => return Err("not committed"),
                Err(_) => return Err("other"),
            },
        };
        released.map_err(|error| match error {
            ReleaseError::NoQuorum { .. } => "no quorum",
            _ => "other",
        })
    }
}

impl Task {
    pub(crate) async fn acquire(&self, choice: &Choice) -> Option<Grant> {
        match choice.target {
            Target::Job(job) => self.start_job(job, choice).await,
            Target::Leadership(election) => self.campaign(election, choice).await,
            _ => self.acquire_lock(choice).await,
        }
    }

    async fn acquire_lock(&self, choice: &Choice) -> Option<Grant> {
        let permits = |semaphore: &Semaphore| match self.config.sabotage {
            Some(Sabotage::Permits) => semaphore.limit() + 1,
            _ => semaphore.permits(self.config.client),
        };
        let acquire = choice.target.acquire(&self.redlock, permits, choice.wait.is_some());
        let mut acquire = self.valid(acquire)?.ttl(choice.ttl);
        if let Some(wait) = choice.wait {
            acquire = acquire.wait(wait);
        }
        let is_fenced = choice.target.is_fenced();
        if is_fenced {
            acquire = acquire.fenced();
        }
        if choice.gives_up_early {
            acquire = acquire.give_up_early();
        }
        if let Some(most) = choice.auto_extend {
            acquire = acquire.auto_extend(most);
        }
        // If the nodes draw different tokens, the acquire needs a second round trip.
        let rounds = if is_fenced { 2 } else { 1 };
        let bound = choice.wait.unwrap_or_default() + rounds * self.config.nodes.node_timeout;
        let verb = choice.target.verb();
        let acquired = self.call(verb, bound, choice.drop_after, acquire, |acquired| {
            acquired.as_ref().map_or_else(refusal, |_| "ok")
        });
        acquired.await?.ok().map(Grant::Lease)
    }

    async fn start_job(&self, number: u16, choice: &Choice) -> Option<Grant> {
        let wait = choice.wait.unwrap_or_default();
        let mut job = self.redlock.once(name(number)).every(PERIOD).ttl(choice.ttl).wait(wait);
        if takes_over(number) {
            job = job.take_over();
        }
        if choice.target.is_fenced() {
            job = job.fenced();
        }
        if let Some(most) = choice.auto_extend {
            job = job.at_most(most);
        }
        let start = async {
            let before = period();
            let (mut start, mut after) = (pin!(job.start()), None);
            let started = poll_fn(|context| {
                let polled = start.as_mut().poll(context);
                // The first poll has determined the period of the run.
                after.get_or_insert_with(period);
                polled
            });
            let started = started.await;
            (started, Some(before).filter(|_| after == Some(before)))
        };
        let bound = wait + CONNECT_TIMEOUT + 5 * self.config.nodes.node_timeout;
        let verb = choice.target.verb();
        let call = self.call(verb, bound, choice.drop_after, start, |(started, _)| match started {
            Ok(JobOutcome::Ran(_)) => "ok",
            Ok(JobOutcome::Skipped { .. }) => "skipped",
            Err(JobError::NotAcquired(error)) => refusal(error),
            Err(JobError::Undecided { .. }) => "undecided",
            Err(_) => "other",
        });
        let (started, period) = call.await?;
        let period = period.filter(|_| !takes_over(number));
        started.ok()?.ran().map(|job| Grant::Job { job, period })
    }

    async fn campaign(&self, number: u16, choice: &Choice) -> Option<Grant> {
        let mut election = self.redlock.election(name(number)).ttl(choice.ttl);
        if let Some(most) = choice.auto_extend {
            election = election.max_hold(most);
        }
        let election = self.valid(election.build())?;
        let limit = choice.wait.unwrap_or(SHORT_CAMPAIGN);
        let limit = choice.drop_after.unwrap_or(limit);
        let campaign = election.campaign("");
        let elected = self.call(choice.target.verb(), limit, Some(limit), campaign, |elected| {
            elected.as_ref().map_or_else(refusal, |_| "ok")
        });
        elected.await?.ok().map(|leadership| Grant::Lease(leadership.into_lease()))
    }

    /// Sends an error if the settings are invalid.
    fn valid<T>(&self, built: Result<T, ConfigError>) -> Option<T> {
        let report = |error: &ConfigError| {
            self.writer.send(&ClientMessage::Error(format!("invalid settings: {error}")));
        };
        built.inspect_err(report).ok()
    }
}

/// Returns the number of the current period, as the library counts it.
fn period() -> u64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since_1970.unwrap_or_default().as_secs() / PERIOD.as_secs()
}

fn refusal(error: &AcquireError) -> &'static str {
    match error {
        AcquireError::Contended { .. } => "contended",
        AcquireError::NoQuorum { .. } => "no quorum",
        AcquireError::Expired { .. } => "expired",
        AcquireError::Timeout { .. } => "timeout",
        AcquireError::Closed => "closed",
        AcquireError::NotPolled { .. } => "not polled",
        AcquireError::Overloaded { .. } => "overloaded",
        _ => "other",
    }
}
