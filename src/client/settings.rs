//! Settings of a client and their validation.

use crate::error::ConfigError;
use crate::lease::{Limits, to_ttl};
use crate::node::RestartGuard;
use crate::observe::shown;
use crate::protocol::{Drift, RetryPolicy, Ttl};
use crate::wire::{CounterKeys, Key, Keys, MAX_VALUE, Value, is_reserved};
use std::sync::Arc;
use std::time::Duration;

/// The builder's settings, not validated yet.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) ttl: Duration,
    pub(super) max_ttl: Duration,
    pub(super) wait: Duration,
    pub(super) retry: RetryPolicy,
    pub(super) prefix: Box<[u8]>,
    pub(super) metadata: Option<Arc<str>>,
    pub(super) is_fenced: bool,
    pub(super) token_ttl: Option<Duration>,
    pub(super) node_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) drift_factor: f64,
    pub(super) drift_constant: Duration,
    pub(super) restart_guard: RestartGuard,
    /// See `Builder::trust_persistence`.
    pub(super) trusts_persistence: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(10),
            max_ttl: Duration::from_secs(60),
            wait: Duration::from_secs(10),
            retry: RetryPolicy::default(),
            prefix: Box::default(),
            metadata: None,
            is_fenced: false,
            token_ttl: None,
            node_timeout: Duration::from_millis(50),
            connect_timeout: Duration::from_secs(1),
            drift_factor: 0.01,
            drift_constant: Duration::from_millis(2),
            restart_guard: RestartGuard::default(),
            trusts_persistence: false,
        }
    }
}

/// Validated settings of one client. They are valid individually and in combination.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) ttl: Duration,
    pub(crate) limits: Limits,
    /// Quarantine of a restarted node: every lock that a node has granted expires within this time.
    pub(crate) term: Duration,
    pub(crate) wait: Duration,
    pub(crate) retry: RetryPolicy,
    pub(crate) prefix: Box<[u8]>,
    pub(crate) metadata: Option<Arc<str>>,
    pub(crate) is_fenced: bool,
    pub(crate) token_ttl: Ttl,
    pub(crate) connect_timeout: Duration,
    /// Settings that only an acquire or a profile has.
    pub(crate) manner: Manner,
}

/// Settings of acquires and profiles that [`Builder`](crate::Builder) does not have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manner {
    pub(crate) gives_up_early: bool,
    /// Maximum hold time, if the lease is to be extended in the background.
    pub(crate) auto_extend: Option<Duration>,
    /// Minimum time for which the lock stays unavailable to others, even after an early release.
    pub(crate) at_least: Duration,
    /// Remaining validity at which the work has to stop.
    pub(crate) stop_before: Option<Duration>,
    pub(crate) class: Option<&'static str>,
}

impl Settings {
    /// Validates `options`.
    pub(super) fn new(options: &Options) -> Result<Self, ConfigError> {
        let factor = options.drift_factor;
        let drift = Drift::DEFAULT.with_factor(factor);
        let drift = drift.ok_or(ConfigError::BadDriftFactor { factor })?;
        for (setting, timeout) in
            [("node_timeout", options.node_timeout), ("connect_timeout", options.connect_timeout)]
        {
            if timeout.is_zero() {
                return Err(ConfigError::ZeroTimeout { setting });
            }
        }
        let (max_ttl, node_timeout) = (options.max_ttl, options.node_timeout);
        let drift = drift.with_constant(options.drift_constant);
        let term = drift.quarantine(to_ttl("max_ttl", max_ttl)?);
        let limits = Limits { max_ttl, node_timeout, drift };
        let token_ttl = check_token_ttl(options.token_ttl, max_ttl)?;
        limits.check_ttl(options.ttl)?;
        check_metadata(options.metadata.as_deref())?;
        if is_reserved(&options.prefix) {
            return Err(ConfigError::ReservedPrefix { prefix: shown(&options.prefix) });
        }
        Ok(Self {
            ttl: options.ttl,
            limits,
            term,
            wait: options.wait,
            retry: options.retry.clone(),
            prefix: options.prefix.clone(),
            metadata: options.metadata.clone(),
            is_fenced: options.is_fenced,
            token_ttl,
            connect_timeout: options.connect_timeout,
            manner: Manner::default(),
        })
    }

    /// The key of a resource. An error if the key is too long or reserved for the library.
    pub(crate) fn key(&self, resource: impl Into<Key>) -> Result<Key, ConfigError> {
        let resource = resource.into();
        let key = if self.prefix.is_empty() {
            resource.clone()
        } else {
            self.prefix.iter().chain(&*resource).copied().collect()
        };
        if key.len() > MAX_KEY {
            let (resource, length) = (shown(&resource), key.len());
            return Err(ConfigError::LongResource { resource, length, most: MAX_KEY });
        }
        if is_reserved(&key) {
            return Err(ConfigError::ReservedResource { resource: shown(&resource) });
        }
        Ok(key)
    }

    /// The keys of `resources`, sorted and without duplicates. An error if there are none or too many, or if they are
    /// too long.
    pub(crate) fn keys(&self, resources: &[Key]) -> Result<Keys, ConfigError> {
        let keys = resources.iter().map(|resource| self.key(resource.clone()));
        let keys = Keys::all(keys.collect::<Result<_, _>>()?).ok_or(ConfigError::NoResources)?;
        let (given, most) = (keys.len(), MAX_RESOURCES);
        if given > most {
            return Err(ConfigError::TooManyResources { given, most });
        }
        let length = keys.iter().map(|key| key.len()).sum();
        if length > MAX_KEYS {
            let (resources, most) = (given, MAX_KEYS);
            return Err(ConfigError::LongResources { resources, length, most });
        }
        Ok(keys)
    }

    /// The keys of the fencing counters of `keys`.
    pub(crate) fn counters(&self, keys: &Keys) -> Result<Arc<CounterKeys>, ConfigError> {
        let counters = CounterKeys::for_keys(keys, self.token_ttl);
        counters.map(Arc::new).map_err(|key| {
            let resource = key.get(self.prefix.len()..).unwrap_or_default();
            ConfigError::NoCounter { resource: shown(resource) }
        })
    }
}

/// Maximum number of resources of one lease. A node processes no other command while it runs the script for them.
const MAX_RESOURCES: usize = 1_000;

/// Maximum length of a key in bytes. A server or proxy that refuses to read a command closes the connection, and all
/// commands in flight on it fail. Redis accepts strings of at least 1 MB (`proto-max-bulk-len`).
const MAX_KEY: usize = 64 << 10;

/// Maximum total length of the keys of one command, in bytes. With counters, the command is three times as long, which
/// is still below 1 MB, the minimum of `client-query-buffer-limit` in Redis.
const MAX_KEYS: usize = 256 << 10;

/// Default lifetime of a counter.
const TOKEN_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// Lifetime of counters. It must not be shorter than the longest lease.
fn check_token_ttl(asked: Option<Duration>, max_ttl: Duration) -> Result<Ttl, ConfigError> {
    let token_ttl = asked.unwrap_or(max_ttl.max(TOKEN_TTL));
    if token_ttl < max_ttl {
        return Err(ConfigError::TokenTtlBelowMax { token_ttl, max_ttl });
    }
    to_ttl("token_ttl", token_ttl)
}

/// Maximum length of metadata in bytes, because every command of a lease contains them.
const MAX_METADATA: usize = 4096;

pub(crate) fn check_metadata(metadata: Option<&str>) -> Result<(), ConfigError> {
    match metadata.map_or(0, str::len) {
        length if length > MAX_METADATA => {
            Err(ConfigError::LongMetadata { length, most: MAX_METADATA })
        }
        _ => Ok(()),
    }
}

/// Refuses to adopt a `value` that cannot belong to a lease of one resource.
pub(super) fn check_value(value: &Value) -> Result<(), ConfigError> {
    let (length, most) = (value.bytes().len(), MAX_VALUE);
    if length > most {
        return Err(ConfigError::LongValue { length, most });
    }
    value.multi_key_count().map_or(Ok(()), |resources| Err(ConfigError::AdoptsSet { resources }))
}

/// Host name and process ID, as `host:pid`.
pub(crate) fn owner() -> String {
    #[cfg(unix)]
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let host = std::env::var("COMPUTERNAME").unwrap_or_else(|_| "host".to_owned());
    format!("{host}:{}", std::process::id())
}
