//! [`Profile`]: settings for one kind of lock.

use super::background::Background;
use super::redlock::Redlock;
use crate::error::ConfigError;
use crate::protocol::RetryPolicy;
use std::time::Duration;

/// Settings for one kind of lock; [`build`](Self::build) creates a client with them. See
/// [`Profile`](crate::Profile).
#[derive(Clone, Debug)]
#[must_use = "a profile does nothing until build() is called"]
pub struct Profile {
    inner: crate::Profile,
    background: Background,
}

impl Redlock {
    /// Starts a [`Profile`]: other settings for one kind of lock, on the same connections; see
    /// [`Redlock::profile`](crate::Redlock::profile).
    pub fn profile(&self) -> Profile {
        Profile { inner: self.inner.profile(), background: self.background.clone() }
    }
}

impl Profile {
    settings! { Profile:
        ttl(ttl: Duration);
        wait(wait: Duration);
        retry(policy: RetryPolicy);
        max_attempts(attempts: u32);
        give_up_early();
        auto_extend(max_hold: Duration);
        auto_extend_forever();
        at_least(time: Duration);
        class(class: &'static str);
        metadata(metadata: impl Into<String>);
        owner();
        fenced();
    }

    /// Checks the settings and creates the client; see [`Profile::build`](crate::Profile::build).
    ///
    /// # Errors
    /// The invalid setting, or the settings that conflict.
    pub fn build(self) -> Result<Redlock, ConfigError> {
        let Self { inner, background } = self;
        Ok(Redlock::sharing(inner.build()?, background))
    }
}
