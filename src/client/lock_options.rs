//! Settings of one acquire and its lease.

use super::config::Config;
use crate::error::ConfigError;
use crate::lease::Limits;
use crate::protocol::{RetryPolicy, Ttl};
use std::sync::Arc;
use std::time::Duration;

/// The default TTL, as in the Redlock page's examples.
const TTL: Duration = Duration::from_secs(10);

const WAIT: Duration = Duration::from_secs(10);

/// Settings that the builder sets for all acquires of a client, and that each acquire can override.
#[derive(Clone, Debug)]
pub(crate) struct LockOptions {
    pub(crate) ttl: Duration,
    /// Maximum duration of the acquire. `None` for a single attempt, which needs no limit.
    pub(crate) wait: Option<Duration>,
    pub(crate) retry: RetryPolicy,
    pub(crate) gives_up_early: bool,
    /// Maximum hold time of a lease that is renewed in the background. `None` disables background renewal.
    pub(crate) auto_extend: Option<Duration>,
    /// Minimum time for which the resource stays locked, even after an early release.
    pub(crate) at_least: Duration,
    /// Remaining validity at which [`LeaseRef::stopping`](crate::LeaseRef::stopping) resolves.
    pub(crate) stop_before: Option<Duration>,
    pub(crate) metadata: Option<Arc<str>>,
    pub(crate) is_fenced: bool,
    pub(crate) class: Option<&'static str>,
}

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

/// The maximum length of metadata in bytes. The length is limited because every command of a lease contains the
/// metadata.
const MAX_METADATA: usize = 4096;

fn check_metadata(metadata: Option<&str>) -> Result<(), ConfigError> {
    match metadata.map_or(0, str::len) {
        length if length > MAX_METADATA => {
            Err(ConfigError::LongMetadata { length, most: MAX_METADATA })
        }
        _ => Ok(()),
    }
}

pub(super) fn owner() -> String {
    #[cfg(unix)]
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let host = std::env::var("COMPUTERNAME").unwrap_or_else(|_| "host".to_owned());
    format!("{host}:{}", std::process::id())
}
