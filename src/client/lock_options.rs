//! Settings of one acquire and its lease.

use super::config::Config;
use crate::error::ConfigError;
use crate::lease::Limits;
use crate::protocol::{RetryPolicy, Ttl};
use std::sync::Arc;
use std::time::Duration;

/// Default ttl, as in the Redlock page's examples.
const TTL: Duration = Duration::from_secs(10);

const WAIT: Duration = Duration::from_secs(10);

/// Settings of an acquire and its lease. The builder has the defaults of a client, a profile overrides them, and an
/// acquire overrides those.
#[derive(Clone, Debug)]
pub(crate) struct LockOptions {
    pub(crate) ttl: Duration,
    /// `None` for a single attempt, which needs no limit.
    pub(crate) wait: Option<Duration>,
    pub(crate) retry: RetryPolicy,
    pub(crate) gives_up_early: bool,
    /// Maximum hold time, if the lease is renewed in the background.
    pub(crate) auto_extend: Option<Duration>,
    /// Minimum time for which the lock stays unavailable to others, even after an early release.
    pub(crate) at_least: Duration,
    /// Remaining validity at which the work has to stop.
    pub(crate) stop_before: Option<Duration>,
    pub(crate) metadata: Option<Arc<str>>,
    pub(crate) is_fenced: bool,
    pub(crate) class: Option<&'static str>,
}

/// Setters of the [`LockOptions`] in a type's field `options`.
macro_rules! lock_option_setters {
    () => {
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
        /// least one attempt, so zero has the effect of one.
        ///
        /// An attempt starts as soon as the lock is likely to be free, and otherwise after the delay that the [retry
        /// policy](Self::retry) specifies. A later call to `retry` replaces this limit.
        pub fn max_attempts(mut self, attempts: u32) -> Self {
            self.options.retry = self.options.retry.limit(attempts.saturating_sub(1));
            self
        }

        /// Fails the acquire as soon as the holder's remaining ttl exceeds the remaining wait time. This also fails an
        /// acquire that would have succeeded by waiting, because the holder may release the lock before its ttl ends. By
        /// default, an acquire waits for its full wait time.
        pub fn give_up_early(mut self) -> Self {
            self.options.gives_up_early = true;
            self
        }

        /// Waits for the full wait time, even if the client's settings enable
        /// [`give_up_early`](Self::give_up_early).
        pub fn without_give_up_early(mut self) -> Self {
            self.options.gives_up_early = false;
            self
        }

        /// Enables background renewal: the client extends the lease each time a third of its validity has passed, until the
        /// lease is released or dropped. After `max_hold`, the lease is lost, so that an unresponsive holder does not keep
        /// the lock indefinitely. `max_hold` does not limit explicit calls to [`extend`](crate::LeaseRef::extend). For
        /// background renewal without a limit, see [`auto_extend_forever`](Self::auto_extend_forever).
        ///
        /// An extension also restores the key on nodes that have lost it, as long as a majority of the nodes still has it.
        /// A failed extension is retried until the validity ends. See [`lost`](crate::LeaseRef::lost) for how the holder is
        /// notified of a loss.
        ///
        /// `max_hold` must be longer than the [node timeout](crate::Builder::node_timeout), because the lease could
        /// otherwise end while it is being acquired. A shorter `max_hold` is rejected with
        /// [`MaxHoldTooShort`](crate::ConfigError::MaxHoldTooShort). An acquire that takes longer than `max_hold` fails.
        pub fn auto_extend(mut self, max_hold: Duration) -> Self {
            self.options.auto_extend = Some(max_hold);
            self
        }

        /// Enables background renewal without a limit. An unresponsive holder then keeps the lock for as long as its
        /// process runs. Use this for a leader whose work is supervised by other means. Otherwise, prefer
        /// [`auto_extend`](Self::auto_extend).
        pub fn auto_extend_forever(self) -> Self {
            self.auto_extend(Duration::MAX)
        }

        /// Disables background renewal that the client's settings enable.
        pub fn without_auto_extend(mut self) -> Self {
            self.options.auto_extend = None;
            self
        }

        /// Keeps the resource locked for at least `time`, even if the lease is released or dropped earlier. The time is
        /// measured from the start of the attempt that acquired the lock. If the lease is released or dropped before `time`
        /// has elapsed, the release replaces the lock's value with a value that has no owner and expires at the end of
        /// `time`, as [`release_after`](crate::Lease::release_after) does.
        ///
        /// Use this for scheduled jobs that must run on one host only. Neither a host whose clock is slightly late nor a
        /// job that fails immediately then causes a second run.
        ///
        /// `time` is truncated to whole milliseconds. Default: zero.
        ///
        /// If `time` is longer than the [ttl](Self::ttl), the acquire fails with
        /// [`AtLeastExceedsTtl`](crate::ConfigError::AtLeastExceedsTtl) before it contacts a node.
        pub fn at_least(mut self, time: Duration) -> Self {
            self.options.at_least = time;
            self
        }

        /// Sets the text that is stored with the lock and shown in its [status](crate::Redlock::status), at most
        /// 4096 bytes. Overrides the client's [`metadata`](crate::Builder::metadata). The text is part of the key's value,
        /// so every client that can read the key can read the text.
        pub fn metadata(mut self, metadata: impl Into<String>) -> Self {
            self.options.metadata = Some(metadata.into().into());
            self
        }

        /// Gives the lease a [fencing token](crate::LeaseRef::token): a number that is higher than the token of each lease
        /// of the same resource that ended earlier. The resource can use it to reject stale writers.
        ///
        /// Each node that grants the lock increments a counter of the resource. If a quorum of nodes returns the same
        /// number, which is the usual case, the token requires no extra round trip. Otherwise it requires a second round
        /// trip, which takes at most one more node timeout.
        ///
        /// With [`acquire_all`](crate::Redlock::acquire_all), the lease has a single token. It is ordered relative to the
        /// token of every lease that shares a resource with this lease. Leases without a token are not ordered: use tokens
        /// for all leases of a resource, or for none.
        ///
        /// The counter's key begins with the lock's key and is in the same hash slot. If the lock's key is empty, or
        /// contains braces that do not form a hash tag, such as `a{b`, the resource cannot have a counter, and the acquire
        /// is [rejected](crate::ConfigError::NoCounter). `{user:7}/inbox` is valid.
        pub fn fenced(mut self) -> Self {
            self.options.is_fenced = true;
            self
        }

        /// Disables fencing tokens that the client's settings enable.
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
        /// remaining validity falls to `margin`. A successful extension before that restarts the wait. Work that runs in
        /// [`using`](crate::Acquire::using) can then finish cleanly. Work that is still running when the validity ends is dropped.
        /// Default: `stopping` resolves when the validity ends.
        ///
        /// Background renewal starts when two thirds of the validity are left, and is retried until it succeeds. For a
        /// lease with background renewal, `margin` must therefore be less than two thirds of the validity, and less than
        /// `max_hold`. For any other lease, it must be less than the whole validity. Otherwise the acquire fails with
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
        /// # // The work has ended in order, and its release goes on in the background.
        /// # let ended: Result<(), quorlock::UsingError<()>> = example.await;
        /// # Ok(ended?)
        /// # }
        /// ```
        pub fn stop_before(mut self, margin: Duration) -> Self {
            self.options.stop_before = Some(margin);
            self
        }
    };
}
pub(super) use lock_option_setters;

impl LockOptions {
    pub(super) fn new(config: &Config) -> Self {
        let owner = || config.owner.unwrap_or_default().then(owner);
        Self {
            ttl: config.ttl.unwrap_or(TTL),
            wait: Some(config.wait.unwrap_or(WAIT)),
            retry: config.retry.clone().unwrap_or_default(),
            gives_up_early: false,
            auto_extend: None,
            at_least: Duration::ZERO,
            stop_before: None,
            metadata: config.metadata.clone().or_else(owner).map(Arc::from),
            is_fenced: config.fenced.unwrap_or_default(),
            class: None,
        }
    }

    /// Validates the options for a client with these `limits`, and returns the ttl.
    pub(super) fn check(&self, limits: &Limits) -> Result<Ttl, ConfigError> {
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
}

/// Maximum length of metadata in bytes, because every command of a lease contains them.
const MAX_METADATA: usize = 4096;

fn check_metadata(metadata: Option<&str>) -> Result<(), ConfigError> {
    match metadata.map_or(0, str::len) {
        length if length > MAX_METADATA => {
            Err(ConfigError::LongMetadata { length, most: MAX_METADATA })
        }
        _ => Ok(()),
    }
}

/// Host name and process ID, as `host:pid`.
pub(super) fn owner() -> String {
    #[cfg(unix)]
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let host = std::env::var("COMPUTERNAME").unwrap_or_else(|_| "host".to_owned());
    format!("{host}:{}", std::process::id())
}
