//! Settings as plain data.

use super::address;
#[cfg(doc)]
use super::builder::Builder;
use super::restart_guard::RestartGuard;
#[cfg(feature = "serde")]
use super::text::deserialize;
use crate::protocol::RetryPolicy;
use std::fmt;
#[cfg(feature = "tls-rustls")]
use std::path::PathBuf;
use std::time::Duration;

/// Declares [`Config`] with its `Debug` implementation, and the method that merges two configurations. In configuration
/// files, the settings in the `text` section are written as strings.
macro_rules! config {
    (
        $(#[$of_config:meta])*
        text { $($(#[$doc:meta])* $text:ident: $type:ty;)* }
        plain { $($(#[$plain_doc:meta])* $plain:ident: $plain_type:ty $(, $feature:literal)?;)* }
    ) => {
        $(#[$of_config])*
        #[derive(Clone, Default)]
        #[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(default, deny_unknown_fields))]
        #[non_exhaustive]
        pub struct Config {
            /// URLs of the nodes. A file can contain either a list or a single string of URLs that are separated by
            /// commas or white space.
            #[cfg_attr(feature = "serde", serde(deserialize_with = "deserialize::nodes"))]
            pub nodes: Vec<String>,
            $(
                $(#[$doc])*
                #[cfg_attr(feature = "serde", serde(deserialize_with = "deserialize::setting"))]
                pub $text: Option<$type>,
            )*
            $(
                $(#[$plain_doc])*
                $(#[cfg(feature = $feature)])?
                pub $plain: Option<$plain_type>,
            )*
        }

        /// Omits the credentials of the nodes.
        impl fmt::Debug for Config {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let nodes = self.nodes.iter().enumerate();
                let nodes = nodes.map(|(at, url)| address::shown(&address::parse(at + 1, url)));
                let mut debug = f.debug_struct("Config");
                debug.field("nodes", &nodes.collect::<Vec<_>>());
                $(debug.field(stringify!($text), &self.$text);)*
                $(
                    $(#[cfg(feature = $feature)])?
                    debug.field(stringify!($plain), &self.$plain);
                )*
                debug.finish()
            }
        }

        impl Config {
            #[cfg(feature = "serde")]
            pub(super) fn overridden_by(self, set: Self) -> Self {
                Self {
                    nodes: if set.nodes.is_empty() { self.nodes } else { set.nodes },
                    $($text: set.$text.or(self.$text),)*
                    $(
                        $(#[cfg(feature = $feature)])?
                        $plain: set.$plain.or(self.$plain),
                    )*
                }
            }
        }
    };
}

config! {
    /// The settings of a client as plain data. They can be read from a file with serde (feature `serde`), read from
    /// [environment variables](Self::from_env), or set in code. Pass the `Config` to [`Builder::from_config`] to create
    /// a client.
    ///
    /// A field that is `None` takes the default of [`Builder`]. Each field has the name of the `Builder` method that
    /// documents the setting. The fields for certificate files require the feature `tls-rustls`. Set other TLS
    /// settings, and [credentials](Builder::credentials) that change while the client runs, on the builder.
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
    /// The keys are the names of the fields. An unknown key causes an error that names the key. Durations and retry
    /// policies are written as text:
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
    /// `Config` cannot be serialized, because its URLs may contain passwords. Its `Debug` output omits the credentials
    /// of the nodes. Errors of this crate never contain the password of a URL. Errors of the `toml` crate contain the
    /// faulty line of the file. If that line may contain a secret, log only the error's `message()`.
    text {
        /// Time for which a node keeps a lock that is neither extended nor released; see [`Builder::ttl`].
        ttl: Duration;
        /// Upper limit for the TTL, the same for all clients of a deployment; see [`Builder::max_ttl`].
        max_ttl: Duration;
        /// How the client treats nodes that were restarted; see [`Builder::restart_guard`].
        restart_guard: RestartGuard;
        /// If true, the client trusts nodes with full persistence to keep every lock across restarts; see
        /// [`Builder::trust_persistence`].
        trust_persistence: bool;
        /// Total time that an acquire may take; see [`Builder::wait`].
        wait: Duration;
        /// Maximum time to wait for a node's reply; see [`Builder::node_timeout`].
        node_timeout: Duration;
        /// Maximum time to wait for a connection; see [`Builder::connect_timeout`].
        connect_timeout: Duration;
        /// Fraction of the TTL that is subtracted from the validity; see [`Builder::drift_factor`].
        drift_factor: f64;
        /// Time that is subtracted from the validity in addition to `drift_factor`; see [`Builder::drift_constant`].
        drift_constant: Duration;
        /// Policy for retries after a refused attempt; see [`Builder::retry`].
        retry: RetryPolicy;
        /// If true, the client stores the host name and the process ID with every lock; see [`Builder::owner`].
        owner: bool;
        /// If true, every lease gets a fencing token; see [`Builder::fenced`].
        fenced: bool;
        /// Time for which a node keeps the fencing counter of an unused resource; see [`Builder::token_ttl`].
        token_ttl: Duration;
    }
    plain {
        /// Prefix of every resource's key; see [`Builder::key_prefix`].
        key_prefix: String;
        /// Text that is stored with every lock; see [`Builder::metadata`]. Cannot be combined with
        /// [`owner`](Self::owner).
        metadata: String;
        /// PEM file with the certificates to trust; see [`Builder::tls_ca_cert_file`].
        tls_ca_cert_file: PathBuf, "tls-rustls";
        /// PEM file with the client's certificate chain; see [`Builder::tls_cert_file`].
        tls_cert_file: PathBuf, "tls-rustls";
        /// PEM file with the client's private key; see [`Builder::tls_key_file`].
        tls_key_file: PathBuf, "tls-rustls";
    }
}

impl Config {
    /// Creates a configuration for `nodes`, with defaults for all other settings.
    pub fn new<I>(nodes: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        Self { nodes: nodes.into_iter().map(Into::into).collect(), ..Self::default() }
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
