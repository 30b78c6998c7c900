//! The settings of one acquire, and the future that runs it.

use super::inner::Inner;
use super::lock_options::LockOptions;
use super::observed::AcquireEvents;
use super::permits::Permits;
use super::settings::check_value;
use super::target::Target;
use crate::coordinator::{AcquireRequest, SharingTerms};
use crate::error::{AcquireError, ConfigError};
use crate::lease::Lease;
use crate::observe::AcquireTag;
use crate::protocol::{RetryPolicy, Time};
use crate::wire::{Key, Keys, Value, queue_name};
use futures::future::BoxFuture;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A future that acquires a lock. Methods such as [`ttl`](Self::ttl) override the client's settings for this acquire.
///
/// Await it, spawn it, or use it in `select!`. The acquire starts when the future is first polled, and its [wait
/// time](Self::wait) is measured from that moment. The output is the [`Lease`], or an [`AcquireError`].
///
/// # Cancel safety
/// The future can be dropped at any time. The client then sends a release to every node that may have set the key, even
/// to a node that is unresponsive and recovers later.
#[must_use = "futures do nothing unless polled"]
pub struct Acquire {
    client: Arc<Inner>,
    target: Target,
    options: LockOptions,
    /// The started acquire, or `None` before the first poll.
    running: Option<BoxFuture<'static, Result<Lease, AcquireError>>>,
}

impl Acquire {
    fn new(client: Arc<Inner>, target: Target) -> Self {
        let options = client.settings.lock.clone();
        Self { client, target, options, running: None }
    }

    pub(crate) fn one(client: Arc<Inner>, resource: &[u8]) -> Self {
        Self::new(client, Target::One(resource.into()))
    }

    pub(crate) fn all<I>(client: Arc<Inner>, resources: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let resources = resources.into_iter().map(|resource| resource.as_ref().into());
        Self::new(client, Target::All(resources.collect()))
    }

    pub(crate) fn any<I>(client: Arc<Inner>, resources: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let resources = resources.into_iter().map(|resource| resource.as_ref().into());
        Self::new(client, Target::Any(resources.collect()))
    }

    pub(crate) fn permit(client: Arc<Inner>, permits: Arc<Permits>) -> Self {
        Self::new(client, Target::Permit(permits))
    }

    pub(crate) fn shared(client: Arc<Inner>, key: Key, sharing: SharingTerms) -> Self {
        Self::new(client, Target::Shared(key, sharing))
    }

    pub(crate) fn handed_over(client: Arc<Inner>, resource: &[u8], value: &str) -> Self {
        let value = Arc::new(Value::of(value.as_bytes()));
        Self::new(client, Target::HandedOver(resource.into(), value))
    }

    pub(crate) fn once(mut self) -> Self {
        (self.options.wait, self.options.retry) = (None, RetryPolicy::none());
        self
    }

    /// Enables background renewal. A limit that [`auto_extend`](Self::auto_extend) has already set stays in effect.
    pub(crate) fn renewed(mut self) -> Self {
        self.options.auto_extend.get_or_insert(Duration::MAX);
        self
    }

    pub(super) fn with_options(self, options: LockOptions) -> Self {
        Self { options, ..self }
    }

    fn start(&self) -> BoxFuture<'static, Result<Lease, AcquireError>> {
        let client = self.client.clone();
        let is_adoption = matches!(self.target, Target::HandedOver(..));
        let LockOptions { wait, ref retry, .. } = self.options;
        // If `try_acquire` was given a retry policy but no wait time, the client's wait time limits the retries.
        let wait = wait.or_else(|| self.client.settings.lock.wait.filter(|_| retry.retries()));
        // An adoption that failed cannot succeed later, so waiting does not help.
        let wait = wait.filter(|_| !is_adoption);
        let deadline = wait.map(|wait| client.backing.clock().now().after(wait));
        let submitted = self.request(deadline).map(|mut request| {
            let watch = AcquireEvents::start(client, &mut request, wait);
            let ttl = request.ttl;
            let acquiring = watch.client.driver.acquire(request);
            (watch, acquiring, ttl)
        });
        let margin = self.options.stop_before;
        // The request is built outside the future, which would otherwise be several times as large.
        Box::pin(async move {
            let (watch, acquiring, ttl) = submitted?;
            let ended = watch.client.await_lease(acquiring, &watch, ttl).await;
            let ended = match ended {
                Ok(lease) => Ok(lease.stopping_at(margin)),
                Err(error) if is_adoption => Err(error.of_adoption()),
                Err(error) => Err(error),
            };
            watch.finish(&ended);
            ended
        })
    }

    fn request(&self, deadline: Option<Time>) -> Result<AcquireRequest, ConfigError> {
        let settings = &self.client.settings;
        let (keys, adopts) = match &self.target {
            Target::One(resource) => (Keys::one(settings.key(resource.clone())?), None),
            Target::HandedOver(resource, value) => {
                check_value(value)?;
                let (key, value) = (settings.key(resource.clone())?, value.clone());
                (Keys::one(key), Some(value))
            }
            Target::All(resources) | Target::Any(resources) => (settings.keys(resources)?, None),
            Target::Permit(permits) => (permits.keys.clone(), None),
            Target::Shared(key, _) => (Keys::one(key.clone()), None),
        };
        let any_of = match &self.target {
            Target::Any(_) if keys.len() > 1 => Some(queue_name(&keys)),
            Target::Permit(permits) => permits.queue.clone(),
            _ => None,
        };
        let permits = matches!(self.target, Target::Permit(_)).then(|| keys.len());
        let sharing = match &self.target {
            Target::Shared(_, sharing) => Some(sharing.clone()),
            _ => None,
        };
        let options = &self.options;
        let ttl = options.check(&settings.limits)?;
        let counters = options.is_fenced.then(|| settings.counters(&keys)).transpose()?;
        Ok(AcquireRequest {
            keys,
            any_of,
            permits,
            sharing,
            ttl,
            metadata: options.metadata.clone(),
            schedule: if adopts.is_some() { RetryPolicy::none() } else { options.retry.clone() }
                .schedule(),
            adopts,
            counters,
            has_one_attempt: !options.retry.retries(),
            max_hold: options.auto_extend,
            at_least: options.at_least,
            deadline,
            gives_up_early: options.gives_up_early,
            tag: AcquireTag { id: 0, class: options.class },
        })
    }
}

impl Acquire {
    /// Sets how long a node keeps the lock unless the lease is extended or released. Overrides the client's
    /// [`ttl`](crate::Builder::ttl).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = ttl;
        self
    }

    /// Sets the total time that the acquire may take, including all attempts. Overrides the client's
    /// [`wait`](crate::Builder::wait).
    pub fn wait(mut self, wait: Duration) -> Self {
        self.options.wait = Some(wait);
        self
    }

    /// Waits for the lock without a time limit.
    pub fn wait_forever(self) -> Self {
        self.wait(Duration::MAX)
    }

    /// Sets the policy for retries after a refused attempt. Overrides the client's [`retry`](crate::Builder::retry).
    ///
    /// By default, [`try_acquire`](crate::Redlock::try_acquire) makes a single attempt, to which the client's
    /// [`wait`](crate::Builder::wait) does not apply. With a policy that retries, the client's `wait` limits the total
    /// time, unless this acquire has its own [`wait`](Self::wait).
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.options.retry = policy;
        self
    }

    /// Limits the number of attempts that the acquire makes within its [wait time](Self::wait). An acquire makes at
    /// least one attempt, so zero is treated as one.
    ///
    /// An attempt starts as soon as the lock is likely to be free, and otherwise after the delay of the [retry
    /// policy](Self::retry). A later call to `retry` replaces this limit.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.options.retry = self.options.retry.limit(attempts.saturating_sub(1));
        self
    }

    /// Makes the acquire fail as soon as the holder's remaining TTL exceeds the remaining wait time. The acquire can
    /// therefore fail even though waiting would have succeeded, because the holder may release the lock before the TTL
    /// ends. By default, an acquire waits for its full wait time.
    pub fn give_up_early(mut self) -> Self {
        self.options.gives_up_early = true;
        self
    }

    /// Enables background renewal: the client extends the lease each time a third of its validity has passed, until the
    /// lease is released or dropped. After `max_hold`, the lease is lost, so that an unresponsive holder does not keep
    /// the lock indefinitely. `max_hold` does not limit explicit calls to [`extend`](crate::LeaseRef::extend). For
    /// background renewal without a limit, see [`auto_extend_forever`](Self::auto_extend_forever).
    ///
    /// An extension also restores the key on nodes that have lost it, as long as a majority of the nodes still has the
    /// key. A failed extension is retried until the validity ends. See [`lost`](crate::LeaseRef::lost) for how the
    /// holder is notified of a loss.
    ///
    /// `max_hold` must be longer than the [node timeout](crate::Builder::node_timeout), because the lease could
    /// otherwise end while it is being acquired. A shorter `max_hold` is rejected with
    /// [`MaxHoldTooShort`](crate::ConfigError::MaxHoldTooShort). An acquire that takes longer than `max_hold` fails.
    pub fn auto_extend(mut self, max_hold: Duration) -> Self {
        self.options.auto_extend = Some(max_hold);
        self
    }

    /// Enables background renewal without a limit. An unresponsive holder then keeps the lock for as long as its
    /// process runs. Use this for a leader whose work is supervised by other means, and prefer
    /// [`auto_extend`](Self::auto_extend) otherwise.
    pub fn auto_extend_forever(self) -> Self {
        self.auto_extend(Duration::MAX)
    }

    /// Keeps the resource locked for at least `time`, even if the lease is released or dropped earlier. `time` is
    /// measured from the start of the attempt that acquired the lock. An early release replaces the key's value instead
    /// of deleting the key. The new value belongs to no lease, and the key expires at the end of `time`; see
    /// [`release_after`](crate::Lease::release_after). Only a lease that is lost because of a panic of the client
    /// ([`Loss::Internal`](crate::Loss::Internal)) is released at once.
    ///
    /// Use this for scheduled jobs that must run on one host only. The job then runs only once, even if it fails
    /// immediately or if another host's clock is slightly late.
    ///
    /// `time` is truncated to whole milliseconds. Default: zero.
    ///
    /// If `time` is longer than the [TTL](Self::ttl), the acquire fails with
    /// [`AtLeastExceedsTtl`](crate::ConfigError::AtLeastExceedsTtl) before it contacts a node.
    pub fn at_least(mut self, time: Duration) -> Self {
        self.options.at_least = time;
        self
    }

    /// Sets a text of at most 4096 bytes that is stored with the lock and shown in its
    /// [status](crate::Redlock::status). Overrides the client's [`metadata`](crate::Builder::metadata). The text is
    /// part of the key's value, so every client that can read the key can read the text.
    pub fn metadata(mut self, metadata: impl Into<String>) -> Self {
        self.options.metadata = Some(metadata.into().into());
        self
    }

    /// Gives the lease a [fencing token](crate::LeaseRef::token): a number that is higher than the token of any
    /// previous lease of the same resource. The protected resource can use the token to reject stale writers.
    ///
    /// Each node that grants the lock increments a counter of the resource. If a quorum of nodes returns the same
    /// number, which is the usual case, the token requires no extra round trip. Otherwise the token requires a second
    /// round trip, which takes at most one more node timeout.
    ///
    /// With [`acquire_all`](crate::Redlock::acquire_all), the lease has a single token. The token is ordered relative
    /// to the token of every lease that shares a resource with this lease. Leases without a token are not ordered: use
    /// tokens for all leases of a resource, or for none.
    ///
    /// The counter's key begins with the lock's key and is in the same hash slot. A lock's key that is empty, or whose
    /// braces do not form a hash tag, such as `a{b`, cannot have a counter. The acquire is then
    /// [rejected](crate::ConfigError::NoCounter). `{user:7}/inbox` is valid.
    pub fn fenced(mut self) -> Self {
        self.options.is_fenced = true;
        self
    }

    /// Disables fencing tokens for this acquire, if the client's settings enable them.
    pub fn without_fencing(mut self) -> Self {
        self.options.is_fenced = false;
        self
    }

    /// Sets the class of the lock for events and metrics, such as `"account"`. Metrics are labelled by class and never
    /// by resource, because there may be millions of resources. Use a string constant, so that the number of
    /// classes stays small.
    pub fn class(mut self, class: &'static str) -> Self {
        self.options.class = Some(class);
        self
    }

    /// Warns the protected work before the lease expires: [`stopping`](crate::LeaseRef::stopping) resolves when the
    /// remaining validity falls to `margin`. A successful extension postpones the warning. Work that runs in
    /// [`using`](crate::Acquire::using) can use the remaining time to finish cleanly. If the work is still running when
    /// the validity ends, `using` drops the work. Default: `stopping` resolves when the validity ends.
    ///
    /// Background renewal starts when two thirds of the validity are left, and is retried until it succeeds. For a
    /// lease with background renewal, `margin` must therefore be less than two thirds of the validity, and less than
    /// `max_hold`. For any other lease, `margin` must be less than the whole validity. Otherwise the acquire fails with
    /// [`MarginTooLong`](crate::ConfigError::MarginTooLong).
    ///
    /// ```
    /// # async fn step() {
    /// #     tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    /// # }
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = quorlock_test::Nodes::start(3);
    /// # let redlock = nodes.client().build()?;
    /// use std::time::Duration;
    ///
    /// # tokio::spawn(async move {
    /// #     tokio::time::sleep(Duration::from_secs(3)).await;
    /// #     nodes.hang();
    /// # });
    /// # let example = async {
    /// let work = async |lease: &quorlock::Lease| {
    ///     let mut stopping = std::pin::pin!(lease.stopping());
    ///     let mut steps = 0;
    ///     loop {
    ///         tokio::select! {
    ///             () = step() => steps += 1,
    ///             left = &mut stopping => break println!("{steps} steps, {left:?} to clean up"),
    ///         }
    ///     }
    /// };
    /// redlock.acquire("orders/42").stop_before(Duration::from_secs(2)).using(work).await?;
    /// # Ok(())
    /// # };
    /// # // The work has stopped cleanly, and the release continues in the background.
    /// # let ended: Result<(), quorlock::UsingError<()>> = example.await;
    /// # Ok(ended?)
    /// # }
    /// ```
    pub fn stop_before(mut self, margin: Duration) -> Self {
        self.options.stop_before = Some(margin);
        self
    }
}

impl Future for Acquire {
    type Output = Result<Lease, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let running = self.running.take().unwrap_or_else(|| self.start());
        self.running.insert(running).as_mut().poll(cx)
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire")
            .field("target", &self.target)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl AcquireError {
    /// Converts the error of an acquire to the error of an adoption. `Contended` becomes `NotHeld`, because the key no
    /// longer has the value to adopt.
    fn of_adoption(self) -> Self {
        match self {
            Self::Contended { report, .. } => Self::NotHeld { report },
            other => other,
        }
    }
}
