//! Settings from environment variables, one variable for each setting.

use super::address;
use super::builder::Builder;
use super::config::Config;
use super::text::{Written, urls};
use crate::error::ConfigError;
use std::collections::BTreeMap;
use std::ffi::OsString;

/// Names of the variables, without the prefix and its `_`.
const NAMES: &[&str] = &[
    "NODES",
    "TTL",
    "MAX_TTL",
    "RESTART_GUARD",
    "TRUST_PERSISTENCE",
    "WAIT",
    "NODE_TIMEOUT",
    "CONNECT_TIMEOUT",
    "DRIFT_FACTOR",
    "DRIFT_CONSTANT",
    "RETRY",
    "KEY_PREFIX",
    "METADATA",
    "OWNER",
    "FENCED",
    "TOKEN_TTL",
    #[cfg(feature = "tls-rustls")]
    "TLS_CA_CERT_FILE",
    #[cfg(feature = "tls-rustls")]
    "TLS_CERT_FILE",
    #[cfg(feature = "tls-rustls")]
    "TLS_KEY_FILE",
];

/// Variables with the prefix [`COMMAND`] that the command `quorlock` sets for its child process. They are not settings,
/// so they must not be refused as unknown.
const TOLD: [&str; 3] = ["HELD", "RESOURCE", "TOKEN"];

const COMMAND: &str = "QUORLOCK";

impl Builder {
    /// Returns a builder with the settings of the environment variables that begin with `prefix` and `_`. With the
    /// prefix `QUORLOCK`, the nodes come from `QUORLOCK_NODES` and the ttl from `QUORLOCK_TTL`, for example; see
    /// [`Config::from_env`]. Later calls on the builder override these settings.
    ///
    /// ```
    /// # fn main() -> Result<(), quorlock::ConfigError> {
    /// # // SAFETY: no other thread of this process reads them at the same time.
    /// # unsafe {
    /// #     std::env::set_var("QUORLOCK_NODES", "redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3");
    /// #     std::env::set_var("QUORLOCK_TTL", "5s");
    /// # }
    /// // QUORLOCK_NODES="redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3" QUORLOCK_TTL=5s
    /// let redlock = quorlock::Builder::from_env("QUORLOCK")?.build()?;
    /// # assert_eq!(redlock.nodes().len(), 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`Config::from_env`].
    pub fn from_env(prefix: impl AsRef<str>) -> Result<Self, ConfigError> {
        Config::from_env(prefix).map(Self::from_config)
    }
}

impl Config {
    /// Reads the environment variables that begin with `prefix` and `_`. Each field has a variable with its name in
    /// capitals. Settings without a variable have their defaults.
    ///
    /// | variable | for example |
    /// |---|---|
    /// | `QUORLOCK_NODES` | `redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3`, or with white space between them |
    /// | `QUORLOCK_TTL`, `_MAX_TTL`, `_TOKEN_TTL`, `_WAIT`, `_NODE_TIMEOUT`, `_CONNECT_TIMEOUT`, `_DRIFT_CONSTANT` | `10s`, `250ms`, `1m 30s` |
    /// | `QUORLOCK_DRIFT_FACTOR` | `0.01` |
    /// | `QUORLOCK_RETRY` | `jittered 50ms..250ms`, `fixed 100ms, limit 3`, `none` |
    /// | `QUORLOCK_RESTART_GUARD` | `observed`, `strict`, `off` |
    /// | `QUORLOCK_TRUST_PERSISTENCE`, `_FENCED`, `_OWNER` | `true`, `false` |
    /// | `QUORLOCK_KEY_PREFIX`, `_METADATA` | any text |
    /// | `QUORLOCK_TLS_CA_CERT_FILE`, `_TLS_CERT_FILE`, `_TLS_KEY_FILE` (feature `tls-rustls`) | `/etc/quorlock/ca.pem` |
    ///
    /// The command `quorlock` passes the held lock to its child process in `QUORLOCK_RESOURCE`, `QUORLOCK_TOKEN` and
    /// `QUORLOCK_HELD`. These variables are not settings and are ignored.
    ///
    /// # Errors
    /// Errors name the variable, and never contain its value:
    ///
    /// - [`MissingVariable`](ConfigError::MissingVariable): no nodes are set.
    /// - [`BadVariable`](ConfigError::BadVariable): the value is invalid; the error says what is expected.
    /// - [`UnknownVariable`](ConfigError::UnknownVariable): a variable with the prefix is not a setting. A misspelt
    ///   name is thus not ignored.
    /// - [`EmptyPrefix`](ConfigError::EmptyPrefix): the prefix is empty.
    pub fn from_env(prefix: impl AsRef<str>) -> Result<Self, ConfigError> {
        Self::from_variables(prefix.as_ref(), std::env::vars_os())
    }

    /// Overrides settings with those of the environment, for example for a program whose configuration file can be
    /// overridden on each host. Variables and errors are the same as for [`from_env`](Self::from_env), except that the
    /// nodes are optional: without a variable, the nodes of this configuration remain.
    ///
    /// ```
    /// use quorlock::{Builder, Config};
    ///
    /// # fn main() -> Result<(), quorlock::ConfigError> {
    /// # // SAFETY: as there.
    /// # unsafe {
    /// #     std::env::set_var("QUORLOCK_TTL", "5s");
    /// # }
    /// let config = Config::new(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]);
    /// let redlock = Builder::from_config(config.with_env("QUORLOCK")?).build()?;
    /// # assert_eq!(redlock.nodes().len(), 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`from_env`](Self::from_env), except [`MissingVariable`](ConfigError::MissingVariable).
    pub fn with_env(self, prefix: impl AsRef<str>) -> Result<Self, ConfigError> {
        self.with_variables(prefix.as_ref(), std::env::vars_os())
    }

    fn from_variables(
        prefix: &str,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let config = Self::default().with_variables(prefix, variables)?;
        if config.nodes.is_empty() {
            let name = format!("{}_NODES", prefix.trim_end_matches('_'));
            return Err(ConfigError::MissingVariable { name });
        }
        Ok(config)
    }

    fn with_variables(
        mut self,
        prefix: &str,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let prefix = prefix.trim_end_matches('_');
        if prefix.is_empty() {
            return Err(ConfigError::EmptyPrefix);
        }
        // Sorted, so that the same one of several errors is always reported.
        let ours: BTreeMap<String, OsString> = variables
            .into_iter()
            .filter_map(|(name, value)| {
                let name = name.to_string_lossy();
                let setting = name.strip_prefix(prefix)?.strip_prefix('_')?;
                Some((setting.to_owned(), value))
            })
            .collect();
        let is_told = |setting: &str| prefix == COMMAND && TOLD.contains(&setting);
        for (setting, value) in ours.iter().filter(|(setting, _)| !is_told(setting)) {
            let name = format!("{prefix}_{setting}");
            if !NAMES.contains(&&**setting) {
                let known = NAMES.iter().map(|known| format!("{prefix}_{known}"));
                let known = known.collect::<Vec<_>>().join(", ");
                return Err(ConfigError::UnknownVariable { name, known });
            }
            let read = value.to_str().ok_or_else(|| "not valid UTF-8".to_owned());
            let set = read.and_then(|text| self.set(setting, text));
            set.map_err(|reason| ConfigError::BadVariable { name, reason })?;
        }
        Ok(self)
    }

    /// Sets one of the [`NAMES`], or returns what is wrong with its `text`.
    fn set(&mut self, setting: &str, text: &str) -> Result<(), String> {
        match setting {
            "NODES" => self.name(nodes(text)?),
            "TTL" => self.ttl = read(text)?,
            "MAX_TTL" => self.max_ttl = read(text)?,
            "RESTART_GUARD" => self.restart_guard = read(text)?,
            "TRUST_PERSISTENCE" => self.trust_persistence = read(text)?,
            "WAIT" => self.wait = read(text)?,
            "NODE_TIMEOUT" => self.node_timeout = read(text)?,
            "CONNECT_TIMEOUT" => self.connect_timeout = read(text)?,
            "DRIFT_FACTOR" => self.drift_factor = read(text)?,
            "DRIFT_CONSTANT" => self.drift_constant = read(text)?,
            "RETRY" => self.retry = read(text)?,
            "KEY_PREFIX" => self.key_prefix = Some(text.to_owned()),
            "METADATA" => self.metadata = Some(text.to_owned()),
            "OWNER" => self.owner = read(text)?,
            "FENCED" => self.fenced = read(text)?,
            "TOKEN_TTL" => self.token_ttl = read(text)?,
            #[cfg(feature = "tls-rustls")]
            "TLS_CA_CERT_FILE" => self.tls_ca_cert_file = Some(text.into()),
            #[cfg(feature = "tls-rustls")]
            "TLS_CERT_FILE" => self.tls_cert_file = Some(text.into()),
            #[cfg(feature = "tls-rustls")]
            "TLS_KEY_FILE" => self.tls_key_file = Some(text.into()),
            other => return Err(format!("unknown setting {other}")),
        }
        Ok(())
    }

    /// Replaces the nodes, unless `nodes` is empty.
    fn name(&mut self, nodes: Vec<String>) {
        if !nodes.is_empty() {
            self.nodes = nodes;
        }
    }
}

fn read<T: Written>(text: &str) -> Result<Option<T>, String> {
    T::read(text).map(Some).ok_or_else(|| format!("must be {}", T::EXPECTED))
}

/// The nodes' URLs. Errors do not contain passwords.
fn nodes(list: &str) -> Result<Vec<String>, String> {
    let urls = urls(list);
    for (at, url) in urls.iter().enumerate() {
        address::parse(at + 1, url).map_err(|fault| fault.to_string())?;
    }
    Ok(urls)
}

#[cfg(test)]
#[path = "variables_tests.rs"]
mod tests;
