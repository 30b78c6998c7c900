//! Profiles: clients that share connections and have different settings.

use super::inner::Inner;
use super::lock_options::{LockOptions, lock_option_setters, owner};
use super::redlock::Redlock;
use super::settings::Settings;
use crate::error::ConfigError;
use crate::protocol::RetryPolicy;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Builder for a client that shares the connections of an existing client, but has different settings, for example for
/// short contended locks or for leader election. [`Redlock::profile`] starts a profile, and [`build`](Self::build)
/// creates the client. Keep that client, and clone it where it is needed.
///
/// # Default
///
/// Settings that the profile does not set are inherited from the client on which [`Redlock::profile`] was called.
/// That client may itself have been built from a profile. Settings of an [`Acquire`](crate::Acquire) override the profile's settings
/// for that acquire only.
#[derive(Clone)]
#[must_use = "a profile does nothing until build() is called"]
pub struct Profile {
    client: Arc<Inner>,
    options: LockOptions,
}

impl Redlock {
    /// Starts a profile of this client: a builder for a client with different settings. The new client uses the same
    /// nodes, connections, wait queues and leases, so it requires only a few hundred bytes.
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
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = quorlock_test::Nodes::start(3);
    /// # let redlock = nodes.client().build()?;
    /// # let locks = locks(&redlock)?;
    /// # assert!(locks.orders.acquire("orders/42").await?.validity() < Duration::from_secs(2));
    /// # assert!(locks.leaders.acquire("leader").await?.token().is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [Closing](Redlock::close) one of these clients closes all of them. [`release_all`](Redlock::release_all)
    /// releases the leases that were acquired through any of them.
    pub fn profile(&self) -> Profile {
        Profile { client: self.inner.clone(), options: self.inner.settings.lock.clone() }
    }
}

impl Profile {
    lock_option_setters!();

    /// Stores the host name and the process ID with every lock, as [`metadata`](Self::metadata) in the form `host:pid`.
    pub fn owner(self) -> Self {
        self.metadata(owner())
    }

    /// Validates the profile's settings, in combination with the client's shared settings, and creates the new client.
    /// Does no I/O.
    ///
    /// # Errors
    /// Returns a [`ConfigError`] that names the invalid setting. The checks are the same as in
    /// [`Builder::build`](crate::Builder::build) and in an acquire.
    pub fn build(self) -> Result<Redlock, ConfigError> {
        let Self { client, options } = self;
        options.check(&client.settings.limits)?;
        let settings = Settings { lock: options, ..client.settings.clone() };
        let (driver, backing) = (client.driver.clone(), client.backing.clone());
        Ok(Redlock { inner: Arc::new(Inner { driver, backing, settings }) })
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile").field("options", &self.options).finish_non_exhaustive()
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
    fn invalid_profile_is_rejected_by_build() {
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
    fn profile_changes_its_own_settings_only() {
        let client = client();
        let before = format!("{:?}", client.inner.settings);
        let profile = client.profile().wait(ms(7)).fenced().max_attempts(3).give_up_early();
        let made = profile.build().expect("good settings");
        assert_eq!(format!("{:?}", client.inner.settings), before);
        let LockOptions { ttl, wait, is_fenced, gives_up_early, auto_extend, .. } =
            made.inner.settings.lock;
        assert_eq!((ttl, wait), (ms(10_000), Some(ms(7))));
        assert_eq!((is_fenced, gives_up_early, auto_extend), (true, true, None));
        let LockOptions { retry, metadata, .. } = &made.inner.settings.lock;
        assert_eq!(format!("{retry:?}"), "jittered 50ms..250ms, at most 2 retries");
        assert_eq!(metadata, &None);
        let more = made.profile().auto_extend(ms(9_000)).owner().build().expect("good settings");
        let options = &more.inner.settings.lock;
        assert_eq!((options.wait, options.auto_extend), (Some(ms(7)), Some(ms(9_000))));
        assert!(options.metadata.is_some() && options.is_fenced);
    }

    #[test]
    fn acquire_can_disable_what_a_profile_enables() {
        let profile = client().profile().fenced().auto_extend_forever().give_up_early();
        let client = profile.build().expect("good settings");
        let acquire = client.acquire("r");
        let acquire = acquire.without_fencing().without_auto_extend().without_give_up_early();
        let LockOptions { is_fenced, auto_extend, gives_up_early, .. } = acquire.options();
        assert_eq!((*is_fenced, *auto_extend, *gives_up_early), (false, None, false));
    }
}
