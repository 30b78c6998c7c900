//! [`Profile`]: settings for one kind of lock.

use super::background::Background;
use super::redlock::Redlock;
use crate::error::ConfigError;
use crate::protocol::RetryPolicy;
use std::time::Duration;

/// Builder for a blocking client that shares the connections of an existing client, but has its own
/// settings; see [`Profile`](crate::Profile). [`build`](Self::build) creates the client.
#[derive(Clone, Debug)]
#[must_use = "a profile does nothing until build() is called"]
pub struct Profile {
    inner: crate::Profile,
    background: Background,
}

impl Redlock {
    /// Starts a [`Profile`]: a builder for a client that shares the connections of this client and
    /// has different settings. See [`Redlock::profile`](crate::Redlock::profile).
    pub fn profile(&self) -> Profile {
        Profile { inner: self.inner.profile(), background: self.background.clone() }
    }
}

impl Profile {
    settings! { Profile:
        /// Sets how long a node keeps a lock that is neither extended nor released.
        ttl(ttl: Duration);
        /// Sets the total time that an acquire may take, including all attempts.
        wait(wait: Duration);
        /// Waits for the lock without a time limit.
        wait_forever();
        /// Sets the policy for retries after a refused attempt.
        retry(policy: RetryPolicy);
        /// Limits the number of attempts of an acquire.
        max_attempts(attempts: u32);
        /// Fails an acquire as soon as the holder's remaining ttl exceeds the remaining wait time.
        give_up_early();
        /// Waits for the full wait time, even if the client's settings enable `give_up_early`.
        without_give_up_early();
        /// Enables background renewal of every lease, for at most `max_hold`.
        auto_extend(max_hold: Duration);
        /// Enables background renewal of every lease, without a limit.
        auto_extend_forever();
        /// Disables background renewal that the client's settings enable.
        without_auto_extend();
        /// Keeps each resource locked for at least `time`, even if its lease is released earlier.
        at_least(time: Duration);
        /// Sets the class of the locks for events and metrics.
        class(class: &'static str);
        /// Sets the text that is stored with every lock and shown in its status.
        metadata(metadata: impl Into<String>);
        /// Stores the host name and the process ID with every lock, as `host:pid`.
        owner();
        /// Gives every lease a fencing token.
        fenced();
        /// Disables fencing tokens that the client's settings enable.
        without_fencing();
    }

    /// Validates the settings and creates the client; see
    /// [`Profile::build`](crate::Profile::build).
    ///
    /// # Errors
    /// Returns a [`ConfigError`] that names the invalid setting, or the settings that conflict.
    pub fn build(self) -> Result<Redlock, ConfigError> {
        let Self { inner, background } = self;
        Ok(Redlock::sharing(inner.build()?, background))
    }
}
