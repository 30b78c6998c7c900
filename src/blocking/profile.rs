//! Settings for one kind of use of a client.

use super::background::Background;
use super::redlock::Redlock;
use crate::error::ConfigError;
use crate::protocol::RetryPolicy;
use std::time::Duration;

/// Settings for one kind of use of a client; [`build`](Self::build) makes a client of it. See
/// [`Profile`](crate::Profile).
#[derive(Clone, Debug)]
#[must_use = "a profile does nothing until build() is called"]
pub struct Profile {
    inner: crate::Profile,
    background: Background,
}

impl Profile {
    pub(super) fn new(inner: crate::Profile, background: Background) -> Self {
        Self { inner, background }
    }

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

    /// Checks the settings; see [`Profile::build`](crate::Profile::build).
    ///
    /// # Errors
    /// Says what cannot work, by name.
    pub fn build(self) -> Result<Redlock, ConfigError> {
        let Self { inner, background } = self;
        Ok(Redlock::sharing(inner.build()?, background))
    }
}
