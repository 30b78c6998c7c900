//! The settings of a client, and their validation.

use super::config::Config;
use super::lock_options::LockOptions;
use crate::error::ConfigError;
use crate::lease::{Limits, to_ttl};
use crate::observe::escape_name;
use crate::protocol::{Drift, Ttl};
use crate::wire::{CounterKeys, Key, Keys, MAX_VALUE, Value, is_reserved, permit_key};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

const MAX_TTL: Duration = Duration::from_secs(60);
/// The default node timeout: the longest that the Redlock page suggests for a TTL of 10 s.
const NODE_TIMEOUT: Duration = Duration::from_millis(50);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) lock: LockOptions,
    pub(crate) limits: Limits,
    pub(crate) prefix: Box<[u8]>,
    pub(crate) token_ttl: Ttl,
    pub(crate) connect_timeout: Duration,
}

impl Settings {
    /// Validates `config` and fills in the defaults. Ignores the nodes and the TLS files.
    pub(super) fn new(config: &Config, prefix: Box<[u8]>) -> Result<Self, ConfigError> {
        if config.owner == Some(true) && config.metadata.is_some() {
            return Err(ConfigError::OwnerAndMetadata);
        }
        let drift = match config.drift_factor {
            Some(factor) => {
                let drift = Drift::DEFAULT.with_factor(factor);
                drift.ok_or(ConfigError::BadDriftFactor { factor })?
            }
            None => Drift::DEFAULT,
        };
        let drift = config.drift_constant.map_or(drift, |constant| drift.with_constant(constant));
        let node_timeout = config.node_timeout.unwrap_or(NODE_TIMEOUT);
        let connect_timeout = config.connect_timeout.unwrap_or(CONNECT_TIMEOUT);
        for (setting, timeout) in
            [("node_timeout", node_timeout), ("connect_timeout", connect_timeout)]
        {
            if timeout.is_zero() {
                return Err(ConfigError::ZeroTimeout { setting });
            }
        }
        let max_ttl = config.max_ttl.unwrap_or(MAX_TTL);
        let limits = Limits { max_ttl, node_timeout, drift };
        to_ttl("max_ttl", max_ttl)?;
        let token_ttl = check_token_ttl(config.token_ttl, max_ttl)?;
        let lock = LockOptions::new(config);
        lock.check(&limits)?;
        if is_reserved(&prefix) {
            return Err(ConfigError::ReservedPrefix { prefix: escape_name(&prefix) });
        }
        Ok(Self { lock, limits, prefix, token_ttl, connect_timeout })
    }

    pub(crate) fn key(&self, resource: impl Into<Key>) -> Result<Key, ConfigError> {
        let resource = resource.into();
        let key = if self.prefix.is_empty() {
            resource.clone()
        } else {
            self.prefix.iter().chain(&*resource).copied().collect()
        };
        if key.len() > MAX_KEY {
            let (resource, length) = (escape_name(&resource), key.len());
            return Err(ConfigError::LongResource { resource, length, most: MAX_KEY });
        }
        if is_reserved(&key) {
            return Err(ConfigError::ReservedResource { resource: escape_name(&resource) });
        }
        Ok(key)
    }

    /// Returns the keys of `resources`, sorted and without duplicates. Fails if no resource is given, or if the keys
    /// are too many or too long.
    pub(crate) fn keys(&self, resources: &[Key]) -> Result<Keys, ConfigError> {
        let keys = resources.iter().map(|resource| self.key(resource.clone()));
        check_keys(Keys::all(keys.collect::<Result<_, _>>()?))
    }

    /// Returns the keys of some permits of the semaphore `name`. The range must end with the number of permits.
    pub(super) fn permit_keys(
        &self,
        name: &[u8],
        permits: Range<usize>,
    ) -> Result<Keys, ConfigError> {
        if permits.end == 0 || permits.end > MAX_RESOURCES {
            return Err(ConfigError::BadPermits { permits: permits.end, most: MAX_RESOURCES });
        }
        let key = self.key(name)?;
        let keys = permits.map(|permit| permit_key(&key, permit)).collect::<Option<Vec<_>>>();
        let keys = keys.ok_or_else(|| ConfigError::BadSemaphore { name: escape_name(name) })?;
        check_keys(Keys::all(keys))
    }

    pub(crate) fn counters(&self, keys: &Keys) -> Result<Arc<CounterKeys>, ConfigError> {
        let counters = CounterKeys::for_keys(keys, self.token_ttl);
        counters.map(Arc::new).map_err(|key| {
            let resource = key.get(self.prefix.len()..).unwrap_or_default();
            ConfigError::NoCounter { resource: escape_name(resource) }
        })
    }
}

/// Checks the number and the length of the keys of one lease.
fn check_keys(keys: Option<Keys>) -> Result<Keys, ConfigError> {
    let keys = keys.ok_or(ConfigError::NoResources)?;
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

/// The maximum number of resources of one lease. While a script locks the resources, the node processes no other
/// commands.
pub(super) const MAX_RESOURCES: usize = 1_000;

/// The maximum length of a key in bytes. A server or proxy that refuses a longer command closes the connection, and all
/// commands in flight on the connection fail. The smallest limit that Redis accepts for the length of a string is 1 MB
/// (`proto-max-bulk-len`).
const MAX_KEY: usize = 64 << 10;

/// The maximum total length of the keys of one command, in bytes. Counter keys triple the length of the command, which
/// must then still fit into 1 MB, the smallest `client-query-buffer-limit` that Redis accepts.
const MAX_KEYS: usize = 256 << 10;

const TOKEN_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the TTL of fencing counters: `asked`, or a default. Fails if the TTL is shorter than `max_ttl`, because a
/// counter could then expire before a lease that uses its token.
fn check_token_ttl(asked: Option<Duration>, max_ttl: Duration) -> Result<Ttl, ConfigError> {
    let token_ttl = asked.unwrap_or(max_ttl.max(TOKEN_TTL));
    if token_ttl < max_ttl {
        return Err(ConfigError::TokenTtlBelowMax { token_ttl, max_ttl });
    }
    to_ttl("token_ttl", token_ttl)
}

/// Checks that `value` can belong to a lease of one resource. Other values cannot be adopted.
pub(super) fn check_value(value: &Value) -> Result<(), ConfigError> {
    let (length, most) = (value.bytes().len(), MAX_VALUE);
    if length > most {
        return Err(ConfigError::LongValue { length, most });
    }
    if value.is_readers() {
        return Err(ConfigError::AdoptsReaders);
    }
    value.multi_key_count().map_or(Ok(()), |resources| Err(ConfigError::AdoptsSet { resources }))
}
