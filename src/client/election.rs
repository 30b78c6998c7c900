//! Leader election: the fenced lock of a name, whose holder is the leader.

use super::acquire::Acquire;
use super::inner::Inner;
use super::leaders::Leaders;
use super::leadership::Leadership;
use super::lock_options::LockOptions;
use super::redlock::Redlock;
use super::using::{UsingError, finish, race};
use crate::error::{AcquireError, ConfigError};
use crate::lease::{LeaseRef, Limits};
use crate::observe::escape_name;
use crate::protocol::RetryPolicy;
use crate::wire::{Key, Keys};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The longest default retry delay. A shorter default applies to a TTL below 2.5 s.
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// Settings of an [`Election`]. [`Redlock::election`] creates it, and [`build`](Self::build) checks the settings.
///
/// # Durations
/// The three durations correspond to three durations of Kubernetes' client-go (`LeaderElectionConfig`), with the same
/// rule: the TTL is longer than the renew deadline, which is longer than 1.2 times the retry delay. All are longer than
/// zero.
///
/// | method | client-go | meaning |
/// |---|---|---|
/// | [`ttl`](Self::ttl) | `LeaseDuration` | If the leader crashes, another candidate can lead after this time. |
/// | [`renew_deadline`](Self::renew_deadline) | `RenewDeadline` | If renewals fail for this time, the leader stops. |
/// | [`retry_delay`](Self::retry_delay) | `RetryPeriod` | Delay between two attempts of a candidate. |
#[derive(Clone)]
#[must_use = "nothing happens until build() is called"]
pub struct ElectionBuilder {
    client: Arc<Inner>,
    name: Key,
    options: LockOptions,
    renew_deadline: Option<Duration>,
    retry_delay: Option<Duration>,
}

/// An election: candidates campaign, and one at a time is the leader. [`Redlock::election`] creates it. Cheap to clone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let nodes = quorlock_test::Nodes::start(3);
/// # let redlock = nodes.client().build()?;
/// let election = redlock.election("scheduler").build()?;
/// let leadership = election.campaign("host-7").await?;
/// println!("leading with token {}", leadership.token());
///
/// let mut leaders = election.observe();
/// let leader = leaders.next().await.flatten().ok_or("no leader")?;
/// assert_eq!(leader.metadata(), Some("host-7"));
/// assert!(leader.min_token() <= leadership.token());
///
/// println!("the leadership was {}", leadership.resign().await?); // usually: released
/// assert_eq!(leaders.next().await, Some(None));
/// # Ok(())
/// # }
/// ```
///
/// # How it works
/// The leader holds the [fenced](Acquire::fenced) lock of the name, with a lease that renews itself. The [guarantee of a
/// lock](crate#guides) therefore holds: at most one leadership is valid at a time. The lock is an ordinary one, so
/// [`Redlock::status`] shows the leader, and [`Redlock::force_release`] deposes it.
///
/// A leader that was suspended finds that it no longer leads when it next checks. A write that it had started before may
/// still arrive. Send the [token](Leadership::token) with each write, so that the resource can reject a former leader.
#[derive(Clone)]
pub struct Election {
    client: Arc<Inner>,
    name: Key,
    options: LockOptions,
}

impl Redlock {
    /// Returns the settings of the election `name`, with the client's settings as defaults. The election uses the lock
    /// of the resource `name`. Contacts no node.
    pub fn election(&self, name: impl AsRef<[u8]>) -> ElectionBuilder {
        let (client, name) = (self.inner.clone(), Key::from(name.as_ref()));
        let mut options = client.settings.lock.clone();
        (options.is_fenced, options.wait) = (true, Some(Duration::MAX));
        options.auto_extend = Some(Duration::MAX);
        ElectionBuilder { client, name, options, renew_deadline: None, retry_delay: None }
    }
}

impl ElectionBuilder {
    /// Sets the time after which the lock of a crashed leader expires. Overrides the client's
    /// [`ttl`](crate::Builder::ttl).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = ttl;
        self
    }

    /// Sets how long renewals may fail until the leader must stop, measured from the start of the last successful one.
    /// [`Leadership::stopping`](LeaseRef::stopping) then resolves, and the rest of the validity is the leader's time to
    /// stop cleanly. The leadership is [lost](LeaseRef::lost) at the end of the validity.
    ///
    /// Default: the validity (the TTL minus the drift allowance), so the leader gets no extra time. The deadline must be
    /// longer than a third of the validity, which passes before the first renewal.
    pub fn renew_deadline(mut self, deadline: Duration) -> Self {
        self.renew_deadline = Some(deadline);
        self
    }

    /// Sets the delay between two attempts of a candidate, and before [`run`](Election::run) campaigns again. Each delay
    /// is a random time between `delay` and 1.2 times `delay`. Candidates that the nodes notify of a release do not wait
    /// for the delay.
    ///
    /// Default: a tenth of the TTL, but at most 250 ms.
    pub fn retry_delay(mut self, delay: Duration) -> Self {
        self.retry_delay = Some(delay);
        self
    }

    /// Limits the duration of each leadership, which is then lost with the reason [`MaxHold`](crate::Loss::MaxHold).
    /// Default: no limit. See [`Acquire::auto_extend`].
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.options.auto_extend = Some(max_hold);
        self
    }

    /// Sets the minimum time between the elections of two leaders, even if the first one resigns earlier. Default:
    /// zero. See [`Acquire::at_least`].
    pub fn at_least(mut self, time: Duration) -> Self {
        self.options.at_least = time;
        self
    }

    /// Sets the metadata of [`run`](Election::run), and of a [campaign](Election::campaign) with an empty text.
    /// Overrides the client's [`metadata`](crate::Builder::metadata).
    pub fn metadata(mut self, metadata: impl Into<String>) -> Self {
        self.options.metadata = Some(metadata.into().into());
        self
    }

    /// Sets the class of the lock for events and metrics; see [`Acquire::class`].
    pub fn class(mut self, class: &'static str) -> Self {
        self.options.class = Some(class);
        self
    }

    /// Checks the settings and returns the election. Contacts no node.
    ///
    /// # Errors
    /// - [`BadRenewDeadline`](ConfigError::BadRenewDeadline) or [`BadRetryDelay`](ConfigError::BadRetryDelay): the
    ///   [relation of the durations](Self#durations) does not hold.
    /// - [`NoCounter`](ConfigError::NoCounter): the name can have no fencing counter.
    /// - Any other [`ConfigError`] for a setting of the lock.
    pub fn build(self) -> Result<Election, ConfigError> {
        let Self { client, name, mut options, renew_deadline, retry_delay } = self;
        let settings = &client.settings;
        let (limits, ttl) = (settings.limits, options.ttl);
        let most = limits.validity(options.check(&limits)?);
        let renew_deadline = renew_deadline.unwrap_or(most);
        let margin = most.saturating_sub(renew_deadline);
        let limit = Limits::margin_limit(most, options.auto_extend);
        if renew_deadline > most || margin >= limit {
            let longer_than = most.saturating_sub(limit);
            return Err(ConfigError::BadRenewDeadline { renew_deadline, longer_than, most, ttl });
        }
        options.stop_before = Some(margin).filter(|margin| !margin.is_zero());
        let retry_delay = retry_delay.unwrap_or_else(|| RETRY_DELAY.min(ttl / 10));
        let longest = retry_delay.saturating_add(retry_delay / 5);
        if retry_delay.is_zero() || longest >= renew_deadline {
            return Err(ConfigError::BadRetryDelay { retry_delay, renew_deadline });
        }
        options.retry = RetryPolicy::jittered(retry_delay..longest);
        settings.counters(&Keys::one(settings.key(name.clone())?))?;
        Ok(Election { client, name, options })
    }
}

impl Election {
    /// Returns the name that was passed to [`Redlock::election`].
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Waits until this candidate is elected, without a time limit, and returns its [`Leadership`]. `metadata` is stored
    /// with the lock, so observers can read it. If it is empty, the metadata of the [builder](ElectionBuilder::metadata)
    /// or of the client applies.
    ///
    /// When a leader resigns, the nodes notify the candidates. Candidates of one client are elected in the order of their
    /// campaigns.
    ///
    /// # Errors
    /// See [`AcquireError`]. Contention and unavailable nodes are no errors: the candidate keeps trying.
    ///
    /// # Cancel safety
    /// See [`Acquire`].
    pub async fn campaign(&self, metadata: impl Into<String>) -> Result<Leadership, AcquireError> {
        Leadership::new(self.acquire(metadata.into()).await?)
    }

    fn acquire(&self, metadata: String) -> Acquire {
        let mut options = self.options.clone();
        if !metadata.is_empty() {
            options.metadata = Some(metadata.into());
        }
        Acquire::one(self.client.clone(), &self.name).with_options(options)
    }

    /// Returns a stream of leaders: the current leader first, then each change. See [`Leaders`].
    ///
    /// The stream reads the nodes only while it is polled. Dropping it cancels the current read.
    pub fn observe(&self) -> Leaders {
        Leaders::new(self.client.clone(), &self.name, self.options.ttl)
    }

    /// Campaigns, and runs `work` while leading. If the leadership is lost, drops the future of `work`, and campaigns
    /// again after the [retry delay](ElectionBuilder::retry_delay). Once `work` returns, resigns and returns its output.
    ///
    /// `work` is cloned for each leadership. To share state between them, use an `Arc` or a reference.
    ///
    /// To give the work time to stop, set a [`renew_deadline`](ElectionBuilder::renew_deadline), and wait for
    /// [`stopping`](LeaseRef::stopping) in the work. Campaigns that fail for a temporary reason are repeated after the
    /// retry delay.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = quorlock_test::Nodes::start(3);
    /// # let redlock = nodes.client().build()?;
    /// let election = redlock.election("scheduler").build()?;
    /// let done = election.run(async |leadership| {
    ///     println!("leading with token {}", leadership.token());
    ///     40 + 2
    /// });
    /// assert_eq!(done.await?, 42);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`NotAcquired`](UsingError::NotAcquired): no campaign can succeed, because the client is closed
    ///   ([`AcquireError::Closed`]), has no runtime, or a setting is invalid.
    /// - [`Overrun`](UsingError::Overrun): `work` returned after the leadership had ended. The error contains the output.
    ///
    /// [`Lost`](UsingError::Lost) is never returned.
    ///
    /// # Cancel safety
    /// If the future is dropped, the work is dropped too, and the leader resigns in the background.
    pub async fn run<T, F>(&self, work: F) -> Result<T, UsingError<T>>
    where
        F: AsyncFnOnce(&Leadership) -> T + Clone,
    {
        loop {
            let leadership = self.win().await?;
            let done = {
                let working = work.clone()(&leadership);
                race(working, leadership.lease()).await
            };
            match finish(done, leadership.into_lease()).await {
                Err(UsingError::Lost { .. }) => self.back_off().await,
                done => return done,
            }
        }
    }

    /// Runs the futures that `work` returns; see [`run`](Self::run). `work` is a closure that takes a view of the
    /// leadership's lease. Use this method in generic code, or if the future of an async closure does not satisfy a
    /// `Send` bound.
    ///
    /// # Errors
    /// See [`run`](Self::run).
    ///
    /// # Cancel safety
    /// See [`run`](Self::run).
    pub async fn run_fut<F, Fut>(&self, mut work: F) -> Result<Fut::Output, UsingError<Fut::Output>>
    where
        F: FnMut(LeaseRef) -> Fut,
        Fut: Future,
    {
        loop {
            let lease = self.win().await?.into_lease();
            let done = race(work(lease.view()), &lease).await;
            match finish(done, lease).await {
                Err(UsingError::Lost { .. }) => self.back_off().await,
                done => return done,
            }
        }
    }

    /// Campaigns until this candidate is elected, or until no campaign can succeed.
    pub(crate) async fn win(&self) -> Result<Leadership, AcquireError> {
        loop {
            match self.campaign("").await {
                Ok(leadership) => return Ok(leadership),
                Err(
                    error @ (AcquireError::Closed
                    | AcquireError::NoRuntime { .. }
                    | AcquireError::Invalid(_)),
                ) => return Err(error),
                Err(_) => self.back_off().await,
            }
        }
    }

    /// Waits for the retry delay, or until the client is closed.
    pub(crate) async fn back_off(&self) {
        let (clock, random) = (self.client.backing.clock(), self.client.backing.pool.random());
        let delay = self.options.retry.schedule().next_delay(random.number()).unwrap_or_default();
        self.client.sleep_until(clock.now().after(delay)).await;
    }
}

impl fmt::Debug for ElectionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElectionBuilder")
            .field("name", &escape_name(&self.name))
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("name", &escape_name(&self.name))
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
