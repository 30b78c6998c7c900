//! Settings as plain data.

use super::address;
use super::builder::Builder;
#[cfg(feature = "serde")]
use super::text::told;
use crate::error::ConfigError;
use crate::node::RestartGuard;
use crate::protocol::RetryPolicy;
use std::fmt;
#[cfg(feature = "tls-rustls")]
use std::path::PathBuf;
use std::time::Duration;

/// The settings of a client as plain data: from a file through serde (feature `serde`), from [environment
/// variables](Self::from_env), or from the program's configuration. Pass it to [`Builder::from_config`].
///
/// A field that is `None` has the default of [`Builder`], whose methods have the names of the fields and document them.
/// Certificate files are settings of the feature `tls-rustls`. Other TLS settings, and
/// [credentials](Builder::credentials) that change, are not data: set them on the builder.
///
/// ```
/// use quorlock::{Builder, Config};
/// use std::time::Duration;
///
/// let mut config = Config::new(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]);
/// config.ttl = Some(Duration::from_secs(5));
/// let redlock = Builder::from_config(config).build()?;
/// # drop(redlock);
/// # Ok::<(), quorlock::ConfigError>(())
/// ```
///
/// # In a file (feature `serde`)
///
/// Keys are the names of the fields. Durations and retry policies are text. An unknown key is an error that names the
/// key:
///
/// ```toml
/// nodes = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]
/// ttl = "10s"
/// node_timeout = "250ms"
/// retry = "jittered 50ms..250ms, limit 20" # none, fixed 100ms, linear 50ms..500ms, exponential 5ms..500ms
/// restart_guard = "observed"               # strict, off
/// drift_factor = 0.01
/// fenced = true
/// ```
///
/// `Config` cannot be serialized, because its URLs may contain passwords. `Debug` shows the nodes without user and
/// password. Errors of this crate never contain the password of a URL. Errors of the `toml` crate contain the line at
/// fault: log their `message()` instead, if that line may be secret.
#[derive(Clone, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct Config {
    /// The URL of each node. A file can also give one text, with URLs separated by commas or white space.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "told::nodes"))]
    pub nodes: Vec<String>,
    /// See [`Builder::ttl`].
    #[cfg_attr(feature = "serde", serde(default, deserialize_with = "told::setting"))]
    pub ttl: Option<Duration>,
    /// See [`Builder::max_ttl`].
    #[cfg_attr(feature = "serde", serde(default, deserialize_with = "told::setting"))]
    pub max_ttl: Option<Duration>,
    /// See [`Builder::restart_guard`].
    #[cfg_attr(feature = "serde", serde(default, deserialize_with = "told::setting"))]
    pub restart_guard: Option<RestartGuard>,
    /// See [`Builder::trust_persistence`].
    pub trust_persistence: Option<bool>,
    /// See [`Builder::wait`].
    #[cfg_attr(feature = "serde", serde(default, deserialize_with = "told::setting"))]
    pub wait: Option<Duration>,
    /// See [`Builder::node_timeout`].
    #[cfg_attr(feature = "serde", serde(default, deserialize_with = "told::setting"))]
    pub node_timeout: Option<Duration>,
    /// See [`Builder::connect_timeout`].
    #[cfg_attr(feature = "serde", serde(default, deserialize_with = "told::setting"))]
    pub connect_timeout: Option<Duration>,
    /// See [`Builder::drift_factor`].
    pub drift_factor: Option<f64>,
    /// See [`Builder::drift_constant`].
    #[cfg_attr(feature = "serde", serde(default, deserialize_with = "told::setting"))]
    pub drift_constant: Option<Duration>,
    /// See [`Builder::retry`].
    #[cfg_attr(feature = "serde", serde(default, deserialize_with = "told::setting"))]
    pub retry: Option<RetryPolicy>,
    /// See [`Builder::key_prefix`].
    pub key_prefix: Option<String>,
    /// See [`Builder::metadata`]. Cannot be combined with [`owner`](Self::owner).
    pub metadata: Option<String>,
    /// True for [`Builder::owner`].
    pub owner: Option<bool>,
    /// True for [`Builder::fenced`].
    pub fenced: Option<bool>,
    /// See [`Builder::token_ttl`].
    #[cfg_attr(feature = "serde", serde(default, deserialize_with = "told::setting"))]
    pub token_ttl: Option<Duration>,
    /// See [`Builder::tls_ca_cert_file`].
    #[cfg(feature = "tls-rustls")]
    pub tls_ca_cert_file: Option<PathBuf>,
    /// See [`Builder::tls_cert_file`].
    #[cfg(feature = "tls-rustls")]
    pub tls_cert_file: Option<PathBuf>,
    /// See [`Builder::tls_key_file`].
    #[cfg(feature = "tls-rustls")]
    pub tls_key_file: Option<PathBuf>,
}

impl Config {
    /// Settings for these nodes. All other settings have their defaults.
    pub fn new<I>(nodes: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        Self { nodes: nodes.into_iter().map(Into::into).collect(), ..Self::default() }
    }
}

impl Builder {
    /// Returns a builder with the settings of `config`. Later calls on the builder override them.
    ///
    /// [`build`](Self::build) reports invalid settings.
    pub fn from_config(config: Config) -> Self {
        let Config { nodes, ttl, max_ttl, restart_guard, trust_persistence, .. } = &config;
        let Config { wait, node_timeout, connect_timeout, drift_constant, token_ttl, .. } = &config;
        let builder = Self::default().nodes(nodes);
        let builder = builder.given(*ttl, Self::ttl).given(*max_ttl, Self::max_ttl);
        let builder = builder.given(*restart_guard, Self::restart_guard);
        let builder = builder.given(*trust_persistence, Self::trust_persistence);
        let builder = builder.given(*wait, Self::wait).given(*node_timeout, Self::node_timeout);
        let builder = builder.given(*connect_timeout, Self::connect_timeout);
        let builder = builder.given(config.drift_factor, Self::drift_factor);
        let builder = builder.given(*drift_constant, Self::drift_constant);
        let builder = builder.given(*token_ttl, Self::token_ttl);
        #[cfg(feature = "tls-rustls")]
        let builder = builder
            .given(config.tls_ca_cert_file, Self::tls_ca_cert_file)
            .given(config.tls_cert_file, Self::tls_cert_file)
            .given(config.tls_key_file, Self::tls_key_file);
        let Config { retry, key_prefix, metadata, owner, fenced, .. } = config;
        let (owner, fenced) = (owner.filter(|is| *is), fenced.filter(|is| *is));
        let both = owner.and(metadata.as_ref()).map(|_| ConfigError::OwnerAndMetadata);
        let builder = builder.given(retry, Self::retry).given(key_prefix, Self::key_prefix);
        let builder = builder.given(metadata, Self::metadata);
        let builder = builder.given(owner, |builder, _| builder.owner());
        let mut builder = builder.given(fenced, |builder, _| builder.fenced());
        builder.fault = both;
        builder
    }

    fn given<T>(self, setting: Option<T>, set: impl FnOnce(Self, T) -> Self) -> Self {
        match setting {
            Some(setting) => set(self, setting),
            None => self,
        }
    }
}

/// Shows the nodes' addresses without user and password.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.nodes.iter().enumerate().map(|(at, url)| address::shown(at + 1, url));
        let mut debug = f.debug_struct("Config");
        debug
            .field("nodes", &nodes.collect::<Vec<_>>())
            .field("ttl", &self.ttl)
            .field("max_ttl", &self.max_ttl)
            .field("restart_guard", &self.restart_guard)
            .field("trust_persistence", &self.trust_persistence)
            .field("wait", &self.wait)
            .field("node_timeout", &self.node_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("drift_factor", &self.drift_factor)
            .field("drift_constant", &self.drift_constant)
            .field("retry", &self.retry)
            .field("key_prefix", &self.key_prefix)
            .field("metadata", &self.metadata)
            .field("owner", &self.owner)
            .field("fenced", &self.fenced)
            .field("token_ttl", &self.token_ttl);
        #[cfg(feature = "tls-rustls")]
        debug
            .field("tls_ca_cert_file", &self.tls_ca_cert_file)
            .field("tls_cert_file", &self.tls_cert_file)
            .field("tls_key_file", &self.tls_key_file);
        debug.finish()
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
