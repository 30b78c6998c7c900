//! Settings from environment variables, one variable for each setting.

use super::address;
use super::builder::Builder;
use super::config::Config;
use super::text::{SettingText, urls};
use crate::error::ConfigError;
use std::collections::BTreeMap;
use std::ffi::OsString;

/// Variables with the prefix [`COMMAND`] that the command `quorlock` sets for its child process. They are not settings,
/// so they are ignored.
const OF_COMMAND: [&str; 3] = ["HELD", "RESOURCE", "TOKEN"];

const COMMAND: &str = "QUORLOCK";

/// Names of variables without their prefix: the fields of [`Config`].
const SETTINGS: &[&str] = &[
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

impl Builder {
    /// Creates a builder from the environment variables whose names begin with `prefix` followed by `_`. With the
    /// prefix `QUORLOCK`, for example, the nodes come from `QUORLOCK_NODES` and the ttl comes from `QUORLOCK_TTL`; see
    /// [`Config::from_env`]. Later calls to the builder's methods override these settings.
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
    /// Reads settings from environment variables. The name of a variable consists of `prefix`, `_`, and the name of the
    /// setting's field in upper case. Settings without a variable keep their defaults.
    ///
    /// | variable | example |
    /// |---|---|
    /// | `QUORLOCK_NODES` | `redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3` (separated by commas or white space) |
    /// | `QUORLOCK_TTL`, `_MAX_TTL`, `_TOKEN_TTL`, `_WAIT`, `_NODE_TIMEOUT`, `_CONNECT_TIMEOUT`, `_DRIFT_CONSTANT` | `10s`, `250ms`, `1m 30s` |
    /// | `QUORLOCK_DRIFT_FACTOR` | `0.01` |
    /// | `QUORLOCK_RETRY` | `jittered 50ms..250ms`, `fixed 100ms, limit 3`, `none` |
    /// | `QUORLOCK_RESTART_GUARD` | `observed`, `strict`, `off` |
    /// | `QUORLOCK_TRUST_PERSISTENCE`, `_FENCED`, `_OWNER` | `true`, `false` |
    /// | `QUORLOCK_KEY_PREFIX`, `_METADATA` | any text |
    /// | `QUORLOCK_TLS_CA_CERT_FILE`, `_TLS_CERT_FILE`, `_TLS_KEY_FILE` (feature `tls-rustls`) | `/etc/quorlock/ca.pem` |
    ///
    /// The `quorlock` command passes the held lock to its child process in `QUORLOCK_RESOURCE`, `QUORLOCK_TOKEN` and
    /// `QUORLOCK_HELD`. These variables are not settings and are ignored.
    ///
    /// # Errors
    /// Errors name the affected variable and never contain its value:
    ///
    /// - [`MissingVariable`](ConfigError::MissingVariable): the variable for the nodes is not set, or is empty.
    /// - [`BadVariable`](ConfigError::BadVariable): the value of a variable is invalid. The error contains the expected
    ///   form.
    /// - [`UnknownVariable`](ConfigError::UnknownVariable): a variable has the prefix but does not match a setting, for
    ///   example because its name is misspelt.
    /// - [`EmptyPrefix`](ConfigError::EmptyPrefix): the prefix is empty.
    pub fn from_env(prefix: impl AsRef<str>) -> Result<Self, ConfigError> {
        Self::from_variables(prefix.as_ref(), std::env::vars_os())
    }

    /// Overrides settings with environment variables, for example to adapt a shared configuration file to each host.
    /// Variables and errors are the same as for [`from_env`](Self::from_env), except that the nodes are optional: if
    /// their variable is not set, this configuration keeps its nodes.
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
        let settings: BTreeMap<String, OsString> = variables
            .into_iter()
            .filter_map(|(name, value)| {
                let name = name.to_string_lossy();
                let setting = name.strip_prefix(prefix)?.strip_prefix('_')?;
                let is_setting = prefix != COMMAND || !OF_COMMAND.contains(&setting);
                is_setting.then(|| (setting.to_owned(), value))
            })
            .collect();
        for (setting, value) in settings {
            let name = format!("{prefix}_{setting}");
            if !SETTINGS.contains(&&*setting) {
                let known = SETTINGS.iter().map(|setting| format!("{prefix}_{setting}"));
                let known = known.collect::<Vec<_>>().join(", ");
                return Err(ConfigError::UnknownVariable { name, known });
            }
            let set = value.to_str().ok_or_else(|| "not valid UTF-8".to_owned());
            set.and_then(|text| self.set(&setting, text))
                .map_err(|reason| ConfigError::BadVariable { name, reason })?;
        }
        Ok(self)
    }

    /// Sets one of the [`SETTINGS`]. Errors never contain `text`, which may be a password.
    fn set(&mut self, setting: &str, text: &str) -> Result<(), String> {
        match setting {
            "NODES" => self.set_nodes(urls(text))?,
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
            _ => {}
        }
        Ok(())
    }

    /// Without a URL, keeps the nodes.
    fn set_nodes(&mut self, urls: Vec<String>) -> Result<(), String> {
        for (at, url) in urls.iter().enumerate() {
            address::parse(at + 1, url).map_err(|error| error.to_string())?;
        }
        if !urls.is_empty() {
            self.nodes = urls;
        }
        Ok(())
    }
}

fn read<T: SettingText>(text: &str) -> Result<Option<T>, String> {
    T::read(text).map(Some).ok_or_else(|| format!("must be {}", T::EXPECTED))
}

#[cfg(test)]
#[path = "variables_tests.rs"]
mod tests;
