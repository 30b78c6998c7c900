//! Scheduled jobs that run once per period.

use super::inner::Inner;
use super::lock_options::LockOptions;
use super::redlock::Redlock;
use crate::observe::escape_name;
use crate::protocol::RetryPolicy;
use crate::wire::Key;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The name of a scheduled job, whose period is not set yet. [`Redlock::once`] creates it.
#[derive(Clone)]
#[must_use = "nothing runs until run() is called"]
pub struct Once {
    client: Arc<Inner>,
    name: Key,
}

/// A scheduled job that runs on one of many machines, once per period. [`Redlock::once`] and [`Once::every`] create it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let nodes = quorlock_test::Nodes::start(3);
/// # let redlock = nodes.client().build()?;
/// use quorlock::JobOutcome;
/// use std::time::Duration;
///
/// // Every machine makes this call, for example each hour.
/// let report = redlock.once("report").every(Duration::from_secs(3_600));
/// match report.run(async |_lease| "42 rows").await? {
///     JobOutcome::Ran(rows) => println!("done: {rows}"),
///     JobOutcome::Skipped { since, .. } => println!("another machine has taken it {since:?} ago"),
/// }
/// # let again = redlock.once("report").every(Duration::from_secs(3_600));
/// # assert!(again.run(async |_lease| ()).await?.is_skipped());
/// # Ok(())
/// # }
/// ```
///
/// # How it works
/// The caller's scheduler, such as cron or `tokio::time::interval`, calls [`run`](Self::run) on each machine. Periods
/// are numbered by the machine's wall clock: floor(Unix time / period). The job has a lock, which is renewed while the
/// job runs, and a counter on each node: the number of the last period that a call has taken, with a record of this call.
/// The job runs if this client has acquired the lock, the period is free on a quorum of nodes, and no node reports that
/// another call has taken it.
///
/// - **At most once** (default): the call takes the period before the job starts. After a crash, the job does not run
///   again in this period.
/// - **At least once** ([`take_over`](Self::take_over)): the call takes the period after the job. After a crash, another
///   call runs the job in the same period. If all calls of the job use `take_over`, the job has run to its end at least
///   once in each period in which a call returns [`Ran`](crate::JobOutcome::Ran), or
///   [`Skipped`](crate::JobOutcome::Skipped) with `since`.
///
/// Nodes keep a counter for two periods and one minute.
///
/// # Limits
/// - **Nodes that lose their data** inside a period can cause a second run: it takes a majority of nodes, counting nodes
///   that have lost their counters and nodes that do not reply. The [restart guard](crate::RestartGuard) ignores a
///   restarted node for about [`max_ttl`](crate::Builder::max_ttl), and each call restores the counter on nodes that
///   have lost it. If no call comes in between, a rolling restart of nodes without persistence loses all counters.
/// - **Wall clocks** must agree to within the period. See [`at_least`](Self::at_least) for schedules that are close to
///   the beginning of a period. While a machine's clock is ahead, the calls of other machines are skipped until their
///   clocks reach the same period, or until the counter expires.
/// - All machines must use the same period, the same offset and the same mode for a name. If the period is changed, the
///   time of the last run decides whether the new period is taken. A skipped call with another period or mode than the
///   call that has taken the period emits [`JobsDiffer`](crate::event::Event::JobsDiffer).
#[derive(Clone)]
#[must_use = "nothing runs until run() is called"]
pub struct ScheduledJob {
    pub(super) client: Arc<Inner>,
    pub(super) name: Key,
    pub(super) period: Duration,
    pub(super) offset: Duration,
    pub(super) takes_over: bool,
    pub(super) options: LockOptions,
}

impl Redlock {
    /// Names a scheduled job that runs once per period on one of many machines; see [`ScheduledJob`]. The job uses the
    /// lock of the same name. Contacts no node.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = quorlock_test::Nodes::start(3);
    /// # let redlock = nodes.client().build()?;
    /// # use std::time::Duration;
    /// let backup = redlock.once("backup").every(Duration::from_secs(86_400)).take_over();
    /// let outcome = backup.run(async |_lease| println!("backing up")).await?;
    /// assert!(!outcome.is_skipped());
    /// # Ok(())
    /// # }
    /// ```
    pub fn once(&self, name: impl AsRef<[u8]>) -> Once {
        Once { client: self.inner.clone(), name: name.as_ref().into() }
    }
}

impl Once {
    /// Sets the period of the job: from one second to 30 days. [`run`](ScheduledJob::run) rejects any other period with
    /// [`BadPeriod`](crate::ConfigError::BadPeriod).
    pub fn every(self, period: Duration) -> ScheduledJob {
        let Self { client, name } = self;
        let options = LockOptions { at_least: Duration::ZERO, ..client.settings.lock.clone() };
        let (offset, takes_over) = (Duration::ZERO, false);
        ScheduledJob { client, name, period, offset, takes_over, options }
    }
}

impl ScheduledJob {
    /// Takes the period after the job instead of before it. If the machine crashes or loses its lease during the job, the
    /// next call runs the job again in the same period: at least once instead of at most once.
    ///
    /// Another machine can take over only with a call in the same period: either its scheduler calls more often than
    /// once per period, or the call [waits](Self::wait) until the lock has expired. A call that returns
    /// [`Skipped`](crate::JobOutcome::Skipped) without `since` has only found the lock held, and does not take over if
    /// the holder crashes later.
    ///
    /// All calls of a job must use `take_over`, or none. A call without it takes the period before its job; if this job
    /// fails, it is not taken over.
    pub fn take_over(mut self) -> Self {
        self.takes_over = true;
        self
    }

    /// Moves the beginning of all periods by `offset`, which must be shorter than the period. By default, periods begin
    /// at multiples of the period since 1970-01-01 00:00 UTC, so a period of a day begins at midnight UTC. Choose an
    /// offset such that the machines call [`run`](Self::run) well inside a period, or exactly at its beginning by their
    /// own clocks.
    pub fn offset(mut self, offset: Duration) -> Self {
        self.offset = offset;
        self
    }

    /// Keeps the lock for at least `time` after the job's attempt to acquire it, even if the job ends earlier. A call
    /// in this time is skipped, although its period may already be the next one by that machine's clock. `time` should
    /// be longer than the difference between the machines' clocks, and shorter than the interval between calls.
    ///
    /// `time` must exceed neither the period nor [`max_ttl`](crate::Builder::max_ttl). It increases a shorter
    /// [`ttl`](Self::ttl). Default: zero.
    pub fn at_least(mut self, time: Duration) -> Self {
        self.options.at_least = time;
        self
    }

    /// Limits the duration of the job. After `time`, the lease is lost with the reason
    /// [`MaxHold`](crate::Loss::MaxHold), and the job's future is dropped. Must exceed the [node
    /// timeout](crate::Builder::node_timeout). Default: no limit; a job that never ends keeps the lock indefinitely.
    pub fn at_most(mut self, time: Duration) -> Self {
        self.options.auto_extend = Some(time);
        self
    }

    /// Sets how long a call waits if another client holds the lock and the period is not taken, or if too few nodes
    /// reply. After this time, the call is skipped, or fails. Zero means a single attempt. Default: the client's
    /// [`wait`](crate::Builder::wait).
    pub fn wait(mut self, wait: Duration) -> Self {
        self.options.wait = Some(wait);
        self
    }

    /// Sets the delays between the attempts of a call that [waits](Self::wait). Overrides the client's
    /// [`retry`](crate::Builder::retry).
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.options.retry = policy;
        self
    }

    /// Sets the TTL of the lock, which is renewed while the job runs. After a crash, the lock expires within this time;
    /// see [`Acquire::ttl`](crate::Acquire::ttl).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = ttl;
        self
    }

    /// Sets the text that is stored with the lock while the job runs; see [`Acquire::metadata`](crate::Acquire::metadata).
    pub fn metadata(mut self, metadata: impl Into<String>) -> Self {
        self.options.metadata = Some(metadata.into().into());
        self
    }

    /// Gives the lease a fencing token; see [`Acquire::fenced`](crate::Acquire::fenced).
    pub fn fenced(mut self) -> Self {
        self.options.is_fenced = true;
        self
    }

    /// Disables fencing tokens, if the client's settings enable them.
    pub fn without_fencing(mut self) -> Self {
        self.options.is_fenced = false;
        self
    }

    /// Sets the class of the lock for events and metrics; see [`Acquire::class`](crate::Acquire::class).
    pub fn class(mut self, class: &'static str) -> Self {
        self.options.class = Some(class);
        self
    }

    /// Warns the job before its lease expires; see [`Acquire::stop_before`](crate::Acquire::stop_before).
    pub fn stop_before(mut self, margin: Duration) -> Self {
        self.options.stop_before = Some(margin);
        self
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").field("name", &escape_name(&self.name)).finish_non_exhaustive()
    }
}

impl fmt::Debug for ScheduledJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduledJob")
            .field("name", &escape_name(&self.name))
            .field("period", &self.period)
            .field("offset", &self.offset)
            .field("takes_over", &self.takes_over)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
