//! What every acquire starts from, and what cannot work.

use crate::error::ConfigError;
use crate::protocol::{Drift, RetryPolicy, Ttl, TtlError};
use std::sync::Arc;
use std::time::Duration;

/// The settings of one client.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) ttl: Duration,
    pub(crate) max_ttl: Duration,
    pub(crate) wait: Duration,
    pub(crate) retry: RetryPolicy,
    pub(crate) prefix: Box<[u8]>,
    pub(crate) metadata: Option<Arc<str>>,
    /// True if every lease has a fencing token.
    pub(crate) is_fenced: bool,
    pub(crate) token_ttl: Ttl,
    pub(crate) node_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) drift: Drift,
}

impl Settings {
    /// The key of a resource.
    pub(crate) fn key(&self, resource: &[u8]) -> Box<[u8]> {
        [&*self.prefix, resource].concat().into()
    }

    /// The ttl that `asked` is, if a key may stand for so long.
    pub(crate) fn check_cool_down(&self, asked: Duration) -> Result<Ttl, ConfigError> {
        let ttl = to_ttl(asked)?;
        let max_ttl = self.max_ttl;
        if asked > max_ttl {
            return Err(ConfigError::TtlExceedsMax { ttl: asked, max_ttl });
        }
        Ok(ttl)
    }

    /// How long counters are to stand: as long as the longest lease at least.
    pub(crate) fn check_token_ttl(&self, asked: Option<Duration>) -> Result<Ttl, ConfigError> {
        let max_ttl = self.max_ttl;
        let token_ttl = asked.unwrap_or(max_ttl.max(TOKEN_TTL));
        if token_ttl < max_ttl {
            return Err(ConfigError::TokenTtlBelowMax { token_ttl, max_ttl });
        }
        to_ttl(token_ttl)
    }

    /// The ttl that `asked` is, if it can work with the other settings.
    pub(crate) fn check_ttl(&self, asked: Duration) -> Result<Ttl, ConfigError> {
        let ttl = self.check_cool_down(asked)?;
        let (drift, node_timeout) = (self.drift.allowance(ttl), self.node_timeout);
        let validity = ttl.as_duration().saturating_sub(drift);
        if validity.is_zero() {
            return Err(ConfigError::DriftExceedsTtl { ttl: asked, drift });
        }
        if node_timeout >= validity {
            let ttl = asked;
            return Err(ConfigError::NodeTimeoutExceedsValidity { node_timeout, ttl, validity });
        }
        Ok(ttl)
    }
}

/// How long a counter stands where nothing else was asked for.
const TOKEN_TTL: Duration = Duration::from_hours(24);

/// `asked` as the nodes can be told it.
pub(crate) fn to_ttl(asked: Duration) -> Result<Ttl, ConfigError> {
    Ttl::from_duration(asked).map_err(|reason| match reason {
        TtlError::TooShort | TtlError::TooLong => ConfigError::BadTtl { ttl: asked },
    })
}

/// The longest metadata: it is sent with every command of its lease.
const MOST_METADATA: usize = 4096;

/// Says so if there is too much of it.
pub(crate) fn check_metadata(metadata: Option<&str>) -> Result<(), ConfigError> {
    match metadata.map_or(0, str::len) {
        length if length > MOST_METADATA => {
            Err(ConfigError::LongMetadata { length, most: MOST_METADATA })
        }
        _ => Ok(()),
    }
}

/// This host and this process.
pub(crate) fn owner() -> String {
    #[cfg(unix)]
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let host = std::env::var("COMPUTERNAME").unwrap_or_else(|_| "host".to_owned());
    format!("{host}:{}", std::process::id())
}
