//! Profiles: clients that share connections and have different settings.

use super::acquire::Acquire;
use super::inner::Inner;
use super::redlock::Redlock;
use super::settings::{Settings, owner};
use crate::error::ConfigError;
use crate::protocol::RetryPolicy;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Settings for one use of a client, for example short contended locks, or the lock of a leader. [`Redlock::profile`]
/// starts a profile, and [`build`](Self::build) creates a client from it; keep that client and clone it.
///
/// # Default
///
/// Settings that the profile does not set are inherited from the client it was started from, which may have a profile
/// itself. Settings of an [`Acquire`] override the profile, for that acquire only.
#[derive(Clone)]
#[must_use = "a profile does nothing until build() is called"]
pub struct Profile {
    client: Arc<Inner>,
    settings: Settings,
}

impl Redlock {
    /// Starts a profile of this client. The profile's client uses the same nodes, connections, wait queues and leases,
    /// so it costs only a few hundred bytes.
    ///
    /// ```
    /// use quorlock::{ConfigError, Redlock, RetryPolicy};
    /// use std::time::Duration;
    ///
    /// struct Locks {
    ///     orders: Redlock,
    ///     leaders: Redlock,
    /// }
    ///
    /// fn locks(redlock: &Redlock) -> Result<Locks, ConfigError> {
    ///     let [ms, seconds] = [Duration::from_millis, Duration::from_secs];
    ///     let often = RetryPolicy::jittered(ms(5)..ms(20));
    ///     Ok(Locks {
    ///         orders: redlock.profile().ttl(seconds(2)).wait(ms(500)).retry(often).build()?,
    ///         leaders: redlock.profile().auto_extend_forever().fenced().owner().build()?,
    ///     })
    /// }
    /// # #[cfg(feature = "test-util")]
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = quorlock::test_util::Nodes::start(3);
    /// # let redlock = nodes.client().build()?;
    /// # let locks = locks(&redlock)?;
    /// # assert!(locks.orders.acquire("orders/42").await?.validity() < Duration::from_secs(2));
    /// # assert!(locks.leaders.acquire("leader").await?.token().is_some());
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "test-util"))]
    /// # fn main() {}
    /// ```
    ///
    /// [Closing](Redlock::close) one of these clients closes all of them. [`release_all`](Redlock::release_all)
    /// releases the leases that were acquired through any of them.
    pub fn profile(&self) -> Profile {
        Profile { client: self.inner.clone(), settings: self.inner.settings.clone() }
    }
}

impl Profile {
    /// How long a node keeps a lock that is neither extended nor released. Must not be longer than the client's
    /// [`max_ttl`](crate::Builder::max_ttl). See [`Builder::ttl`](crate::Builder::ttl).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.ttl = ttl;
        self
    }

    /// Total time that [`acquire`](Redlock::acquire) may take. See [`Builder::wait`](crate::Builder::wait).
    pub fn wait(mut self, wait: Duration) -> Self {
        self.settings.wait = wait;
        self
    }

    /// When [`acquire`](Redlock::acquire) retries after a refused attempt.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.settings.retry = policy;
        self
    }

    /// Maximum number of attempts of an [`acquire`](Redlock::acquire); see [`Acquire::max_attempts`]. A later call of
    /// [`retry`](Self::retry) replaces it.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.settings.retry = self.settings.retry.limit(attempts.saturating_sub(1));
        self
    }

    /// Fails immediately if the holder's remaining ttl exceeds the remaining wait time; see [`Acquire::give_up_early`].
    pub fn give_up_early(mut self) -> Self {
        self.settings.manner.gives_up_early = true;
        self
    }

    /// Extends every lease in the background, for at most `max_hold`; see [`Acquire::auto_extend`].
    pub fn auto_extend(mut self, max_hold: Duration) -> Self {
        self.settings.manner.auto_extend = Some(max_hold);
        self
    }

    /// Extends every lease in the background without a limit; see [`Acquire::auto_extend_forever`].
    pub fn auto_extend_forever(self) -> Self {
        self.auto_extend(Duration::MAX)
    }

    /// Keeps each lock unavailable to others for at least `time`; see [`Acquire::at_least`].
    pub fn at_least(mut self, time: Duration) -> Self {
        self.settings.manner.at_least = time;
        self
    }

    /// Class of the locks for events and metrics; see [`Acquire::class`].
    pub fn class(mut self, class: &'static str) -> Self {
        self.settings.manner.class = Some(class);
        self
    }

    /// Signals the work when the remaining validity falls below `margin`; see [`Acquire::stop_before`].
    pub fn stop_before(mut self, margin: Duration) -> Self {
        self.settings.manner.stop_before = Some(margin);
        self
    }

    /// Text that is stored with every lock and appears in its [status](Redlock::status), at most 4096 bytes.
    pub fn metadata(mut self, metadata: impl Into<String>) -> Self {
        self.settings.metadata = Some(metadata.into().into());
        self
    }

    /// Stores host and process ID with every lock: `metadata("host:pid")`.
    pub fn owner(self) -> Self {
        self.metadata(owner())
    }

    /// Gives every lease a fencing token; see [`Acquire::fenced`].
    pub fn fenced(mut self) -> Self {
        self.settings.is_fenced = true;
        self
    }

    /// Validates the settings, together with the client's shared settings. Does no I/O.
    ///
    /// # Errors
    /// The error names the invalid setting, as for [`Builder::build`](crate::Builder::build) and an acquire.
    pub fn build(self) -> Result<Redlock, ConfigError> {
        let Self { client, settings } = self;
        let (driver, backing) = (client.driver.clone(), client.backing.clone());
        let inner = Arc::new(Inner { driver, backing, settings });
        Acquire::one(inner.clone(), b"").check()?;
        Ok(Redlock { inner })
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn client() -> Redlock {
        Redlock::builder().nodes(["redis://127.0.0.1:1"]).build().expect("good settings")
    }

    #[test]
    fn what_cannot_work_is_refused_when_the_profile_is_made() {
        let client = client();
        let (ttl, max_ttl, node_timeout) = (ms(10_000), ms(60_000), ms(50));
        let limit = ms(9_898) / 3 * 2;
        for (profile, refusal) in [
            (
                client.profile().ttl(ms(60_001)),
                ConfigError::TtlExceedsMax { ttl: ms(60_001), max_ttl },
            ),
            (
                client.profile().ttl(Duration::ZERO),
                ConfigError::BadTtl { setting: "ttl", ttl: Duration::ZERO },
            ),
            (
                client.profile().at_least(ms(10_001)),
                ConfigError::AtLeastExceedsTtl { at_least: ms(10_001), ttl },
            ),
            (
                client.profile().auto_extend(node_timeout),
                ConfigError::MaxHoldTooShort { max_hold: node_timeout, node_timeout },
            ),
            (
                client.profile().auto_extend_forever().stop_before(ms(9_000)),
                ConfigError::MarginTooLong { margin: ms(9_000), limit },
            ),
            (
                client.profile().metadata("m".repeat(4_097)),
                ConfigError::LongMetadata { length: 4_097, most: 4_096 },
            ),
        ] {
            let made = format!("{profile:?}");
            assert_eq!(profile.build().expect_err(&made), refusal);
        }
        // A profile can correct a setting that is invalid with its parent's settings.
        let nested = client.profile().ttl(ms(20_000)).build().expect("good settings");
        assert!(nested.profile().at_least(ms(10_001)).build().is_ok());
    }

    #[test]
    fn a_profile_changes_what_it_is_told_and_nothing_else() {
        let client = client();
        let before = format!("{:?}", client.inner.settings);
        let profile = client.profile().wait(ms(7)).fenced().max_attempts(3).give_up_early();
        let made = profile.build().expect("good settings");
        assert_eq!(format!("{:?}", client.inner.settings), before);
        let Settings { ttl, wait, ref retry, ref metadata, is_fenced, manner, .. } =
            made.inner.settings;
        assert_eq!((ttl, wait, is_fenced, manner.gives_up_early), (ms(10_000), ms(7), true, true));
        assert_eq!(format!("{retry:?}"), "jittered 50ms..250ms, at most 2 retries");
        assert_eq!((manner.auto_extend, metadata), (None, &None));
        let more = made.profile().auto_extend(ms(9_000)).owner().build().expect("good settings");
        let settings = &more.inner.settings;
        assert_eq!((settings.wait, settings.manner.auto_extend), (ms(7), Some(ms(9_000))));
        assert!(settings.metadata.is_some() && settings.is_fenced);
    }
}
