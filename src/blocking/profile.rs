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
    lock_settings!(Profile);

    settings! { Profile:
        /// Stores the host name and the process ID with every lock, as `host:pid`.
        owner();
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
