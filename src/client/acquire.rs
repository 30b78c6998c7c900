//! An acquire in the making, and the future that it is.

use super::observed::AcquireWatch;
use super::redlock::Inner;
use super::settings::{Manner, check_metadata, check_value};
use crate::acquire::{AcquireRequest, Adoption, PreviousLease};
use crate::error::{AcquireError, ConfigError};
use crate::lease::Lease;
use crate::observe::Tag;
use crate::protocol::{RetryPolicy, Time, Ttl};
use crate::wire::{Key, Keys, Value};
use futures::future::BoxFuture;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// An acquire with its settings. It is a future: `.await` it, spawn it, or race it in `select!`.
/// It does nothing before it is polled; the settings count from then, and so does the wait bound.
///
/// # Cancel safety
/// If it is dropped, at whatever point, every node that may have set the key is told to release it,
/// also one that hangs at the time and resumes later.
#[must_use = "futures do nothing unless polled"]
pub struct Acquire {
    client: Arc<Inner>,
    target: Target,
    ttl: Duration,
    /// `None` for a single attempt that takes its time.
    wait: Option<Duration>,
    retry: RetryPolicy,
    gives_up_early: bool,
    /// The most time to hold it, if it is to be extended in the background.
    auto_extend: Option<Duration>,
    /// How long the lock is kept from others, whatever becomes of the lease.
    at_least: Duration,
    /// When so much is left, the work under it has to stop.
    stop_before: Option<Duration>,
    metadata: Option<Arc<str>>,
    is_fenced: bool,
    class: Option<&'static str>,
    stage: Stage,
}

/// How far an acquire is.
enum Stage {
    /// It was not polled.
    Fresh,
    Running(BoxFuture<'static, Result<Lease, AcquireError>>),
}

/// What is to be locked.
#[derive(Clone)]
enum Target {
    One(Key),
    All(Vec<Key>),
    /// What this value stands for.
    HandedOver(Key, Arc<Value>),
}

impl Acquire {
    fn new(client: Arc<Inner>, target: Target) -> Self {
        let (ttl, metadata) = (client.settings.ttl, client.settings.metadata.clone());
        let is_fenced = client.settings.is_fenced;
        let Manner { gives_up_early, auto_extend, at_least, stop_before, class } =
            client.settings.manner;
        Self {
            client,
            target,
            ttl,
            wait: None,
            retry: RetryPolicy::none(),
            gives_up_early,
            auto_extend,
            at_least,
            stop_before,
            metadata,
            is_fenced,
            class,
            stage: Stage::Fresh,
        }
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

    pub(crate) fn handed_over(client: Arc<Inner>, resource: &[u8], value: &str) -> Self {
        let value = Arc::new(Value::of(value.as_bytes()));
        Self::new(client, Target::HandedOver(resource.into(), value))
    }

    /// Waits and tries again as the client's settings say.
    pub(crate) fn patient(self) -> Self {
        let (wait, retry) = (self.client.settings.wait, self.client.settings.retry.clone());
        self.wait(wait).retry(retry)
    }

    /// How long the nodes keep the lock, in place of the client's [`ttl`](crate::Builder::ttl).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to try in all, in place of the client's [`wait`](crate::Builder::wait).
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// When to try again, in place of the client's [`retry`](crate::Builder::retry). With
    /// [`try_acquire`](crate::Redlock::try_acquire), which has no wait bound of its own, that of the
    /// [client](crate::Builder::wait) holds then.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// At most so many attempts, within the wait bound.
    ///
    /// An attempt is made when there is reason to believe that the lock is free, and else as the
    /// [retry policy](Self::retry) says.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.retry = self.retry.limit(attempts.saturating_sub(1));
        self
    }

    /// Gives up at once when the holder's remaining ttl already exceeds the time left to wait. It
    /// could still be released earlier: that chance is given up too.
    pub fn give_up_early(mut self) -> Self {
        self.gives_up_early = true;
        self
    }

    /// Extends the lease in the background, each time a third of its validity has passed, until it
    /// is released or dropped, or has been held for `max_hold`: then it is lost, so that a holder
    /// that hangs does not keep the lock for ever. One that [extends](crate::LeaseRef::extend) it does not hang, and
    /// has it for as long as it has asked for. Without a limit: [`auto_extend_forever`](Self::auto_extend_forever).
    ///
    /// Nodes that lost the key get it back while a majority has it. When extensions fail they are
    /// tried again until the validity ends; see [`lost`](crate::LeaseRef::lost).
    ///
    /// A `max_hold` that is not longer than the [node timeout](crate::Builder::node_timeout) is refused
    /// as [`MaxHoldTooShort`](crate::ConfigError::MaxHoldTooShort): a lease could end while it is
    /// acquired. Where that happens all the same, it is refused.
    pub fn auto_extend(mut self, max_hold: Duration) -> Self {
        self.auto_extend = Some(max_hold);
        self
    }

    /// Extends the lease in the background for as long as its holder keeps it; else as
    /// [`auto_extend`](Self::auto_extend). A holder that hangs, and whose process lives, keeps the lock
    /// for good: for a leader whose work is watched by other means.
    pub fn auto_extend_forever(self) -> Self {
        self.auto_extend(Duration::MAX)
    }

    /// Keeps the lock from others for `time`, counted from when it is acquired, also if the lease is
    /// released or dropped before: from then on a value that nobody owns stands in its place, as with
    /// [`release_after`](crate::Lease::release_after). For jobs that must not run again at once
    /// however quickly they are done, on whichever host: clocks that differ a little, or a job that
    /// fails, do not make it run twice. At most the [ttl](Self::ttl); whole milliseconds count.
    ///
    /// The acquire is refused, before any node is asked, if `time` is longer than the ttl:
    /// [`AtLeastExceedsTtl`](crate::ConfigError::AtLeastExceedsTtl).
    pub fn at_least(mut self, time: Duration) -> Self {
        self.at_least = time;
        self
    }

    /// What is told to those who ask [who holds the lock](crate::Redlock::status), in place of the
    /// client's [`metadata`](crate::Builder::metadata). It stands in the value under the key, and
    /// everybody who can read the key can read it. At most 4096 bytes.
    pub fn metadata(mut self, metadata: impl Into<String>) -> Self {
        self.metadata = Some(metadata.into().into());
        self
    }

    /// Gives the lease a [fencing token](crate::LeaseRef::token): a number that is higher than that of
    /// every lease that ended before, for resources that can refuse who comes too late.
    ///
    /// Each node that grants draws a number from a counter of the resource. If a quorum draws the same
    /// one, as a rule, the token costs no round trip; if not, a second one, for which the nodes have
    /// another node timeout. With [`acquire_all`](crate::Redlock::acquire_all) the one token of the
    /// lease is ordered against every lease that has one of its resources. Leases without a token do
    /// not count: use it for all leases of a resource, or for none.
    ///
    /// The counter's key begins with the lock's and is in its hash slot. A key that is empty, or has
    /// braces that are no hash tag, such as `a{b`, can have none, and is
    /// [refused](ConfigError::NoCounter); `{user:7}/inbox` is fine.
    pub fn fenced(mut self) -> Self {
        self.is_fenced = true;
        self
    }

    /// What kind of lock it is, such as `"account"`, for events and metrics: they tell kinds of locks apart by
    /// it, and never by resource, of which there may be millions. For that its text has to stand in the
    /// program: there are as many classes as were written there.
    pub fn class(mut self, class: &'static str) -> Self {
        self.class = Some(class);
        self
    }

    /// Gives work a signal before its lock ends: [`stopping`](crate::LeaseRef::stopping) resolves when less
    /// than `margin` of the validity is left, and no renewal has come through. What [`using`](Self::using)
    /// runs can then end in order; if it has not by the end of the validity, it is dropped as ever.
    ///
    /// A renewal begins when two thirds of the validity are left, and is tried again until it succeeds.
    /// So the `margin` has to be less than two thirds for a lease that is renewed, and less than the
    /// whole validity for another: else it is refused as
    /// [`MarginTooLong`](crate::ConfigError::MarginTooLong). Without it, the signal comes with the end.
    ///
    /// ```
    /// # async fn step() {
    /// #     tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    /// # }
    /// # #[cfg(feature = "test-util")]
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = quorlock::test_util::Nodes::start(3);
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
    /// # // The work has ended in order, and its release goes on in the background.
    /// # let ended: Result<(), quorlock::UsingError<()>> = example.await;
    /// # Ok(ended?)
    /// # }
    /// # #[cfg(not(feature = "test-util"))]
    /// # fn main() {}
    /// ```
    pub fn stop_before(mut self, margin: Duration) -> Self {
        self.stop_before = Some(margin);
        self
    }

    /// Renewed for as long as it is held, unless a bound was set.
    pub(crate) fn renewed(mut self) -> Self {
        self.auto_extend.get_or_insert(Duration::MAX);
        self
    }

    fn start(&self) -> BoxFuture<'static, Result<Lease, AcquireError>> {
        let client = self.client.clone();
        let is_adoption = matches!(self.target, Target::HandedOver(..));
        // What was handed over is there or not: waiting does not help.
        let wait = self.wait.or_else(|| {
            // Every loop has a bound, also that of a single attempt which was told to try again.
            self.retry.retries().then_some(self.client.settings.wait)
        });
        let wait = wait.filter(|_| !is_adoption);
        let schedule =
            if is_adoption { RetryPolicy::none().schedule() } else { self.retry.schedule() };
        let deadline = wait.map(|wait| client.backing.clock().now().after(wait));
        let request = self.request(deadline);
        let (max_hold, at_least, margin) = (self.auto_extend, self.at_least, self.stop_before);
        Box::pin(async move {
            let mut request = request?;
            let (ttl, keys) = (request.ttl, request.keys.clone());
            let watch = AcquireWatch::begin(&client, &mut request, &keys, wait);
            let ended = match client.driver.acquire(request, schedule).await {
                Ok(acquired) => Lease::new(&client.backing, acquired, ttl, (max_hold, at_least))
                    .map(|lease| lease.stopping_at(margin))
                    .ok_or(AcquireError::Closed),
                Err(failure) if is_adoption => Err(client.explain(failure, &keys).of_adoption()),
                Err(failure) => Err(client.explain(failure, &keys)),
            };
            watch.end(&ended);
            ended
        })
    }

    /// The ttl, if all settings can work, whatever is to be locked.
    pub(super) fn check(&self) -> Result<Ttl, ConfigError> {
        let limits = &self.client.settings.limits;
        check_metadata(self.metadata.as_deref())?;
        if self.at_least > self.ttl {
            let (at_least, ttl) = (self.at_least, self.ttl);
            return Err(ConfigError::AtLeastExceedsTtl { at_least, ttl });
        }
        limits.check_max_hold(self.auto_extend)?;
        let ttl = limits.check_ttl(self.ttl)?;
        limits.check_margin(self.stop_before, ttl, self.auto_extend)?;
        Ok(ttl)
    }

    fn request(&self, deadline: Option<Time>) -> Result<AcquireRequest, ConfigError> {
        let settings = &self.client.settings;
        let (keys, adopts) = match &self.target {
            Target::One(resource) => (Keys::one(settings.key(resource.clone())?), None),
            Target::HandedOver(resource, value) => {
                check_value(value)?;
                let (key, value) = (settings.key(resource.clone())?, value.clone());
                let previous = self.client.backing.registry.find(&key, &value);
                let previous = previous.map(|lease| lease as Arc<dyn PreviousLease>);
                (Keys::one(key), Some(Adoption { value, previous }))
            }
            Target::All(resources) => (settings.keys(resources)?, None),
        };
        let ttl = self.check()?;
        let counters = self.is_fenced.then(|| settings.counters(&keys)).transpose()?;
        Ok(AcquireRequest {
            keys,
            ttl,
            metadata: self.metadata.clone(),
            adopts,
            counters,
            is_last_chance: !self.retry.retries(),
            max_hold: self.auto_extend,
            deadline,
            gives_up_early: self.gives_up_early,
            tag: Tag { id: 0, class: self.class },
            prefix: settings.prefix.len(),
        })
    }
}

impl Future for Acquire {
    type Output = Result<Lease, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match &mut self.stage {
                Stage::Fresh => self.stage = Stage::Running(self.start()),
                Stage::Running(running) => return running.as_mut().poll(cx),
            }
        }
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire")
            .field("target", &self.target)
            .field("ttl", &self.ttl)
            .field("wait", &self.wait)
            .field("retry", &self.retry)
            .finish_non_exhaustive()
    }
}

/// Names what is to be locked, and no value.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(resource) | Self::HandedOver(resource, _) => {
                write!(f, "{:?}", String::from_utf8_lossy(resource))
            }
            Self::All(resources) => f
                .debug_list()
                .entries(resources.iter().map(|one| String::from_utf8_lossy(one)))
                .finish(),
        }
    }
}
