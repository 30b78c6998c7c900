//! Settings from the environment: one variable each.

use super::address;
use super::builder::Builder;
use super::config::Config;
use super::text::{Written, urls};
use crate::error::ConfigError;
use std::collections::BTreeMap;
use std::ffi::OsString;

/// What follows the prefix and a `_`.
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

/// What the command `quorlock` tells those that it runs, under its own prefix: no settings, and refused by nobody
/// who is run by it.
const TOLD: [&str; 3] = ["HELD", "RESOURCE", "TOKEN"];

/// The prefix of the command's variables.
const COMMAND: &str = "QUORLOCK";

impl Builder {
    /// Starts with the settings that the environment has under `prefix`: with `QUORLOCK`, the nodes from
    /// `QUORLOCK_NODES`, the ttl from `QUORLOCK_TTL`, and so on; see [`Config::from_env`]. More can be set,
    /// and what is set later counts.
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
    /// As [`Config::from_env`].
    pub fn from_env(prefix: impl AsRef<str>) -> Result<Self, ConfigError> {
        Config::from_env(prefix).map(Self::from_config)
    }
}

impl Config {
    /// Reads the variables of the environment that begin with `prefix` and a `_`. There is one for each
    /// field, by its name in capitals; what is not set is as ever.
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
    /// `QUORLOCK_RESOURCE`, `QUORLOCK_TOKEN` and `QUORLOCK_HELD`, by which the command `quorlock` tells those that it
    /// runs what they hold, are no settings, and are passed over.
    ///
    /// # Errors
    /// Each names the variable, and none shows what it holds:
    /// [`MissingVariable`](ConfigError::MissingVariable) without nodes,
    /// [`BadVariable`](ConfigError::BadVariable) with what is expected,
    /// [`UnknownVariable`](ConfigError::UnknownVariable) for one with the prefix that is no setting, so that
    /// a typing error is not a default, and [`EmptyPrefix`](ConfigError::EmptyPrefix).
    pub fn from_env(prefix: impl AsRef<str>) -> Result<Self, ConfigError> {
        Self::from_variables(prefix.as_ref(), std::env::vars_os())
    }

    /// The same settings, but for those that the environment has: they count. For a program whose file can be overridden
    /// where it runs. Variables and errors are those of [`from_env`](Self::from_env), but for the nodes: where no
    /// variable names them, they are those that are here, if there are any.
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
    /// As [`from_env`](Self::from_env), without [`MissingVariable`](ConfigError::MissingVariable).
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
        // In order, so that of several faults the same one is told every time.
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
            let read = value.to_str().ok_or_else(|| "it is no UTF-8".to_owned());
            let set = read.and_then(|text| self.set(setting, text));
            set.map_err(|reason| ConfigError::BadVariable { name, reason })?;
        }
        Ok(self)
    }

    /// Sets one of the [`NAMES`], or says what is wrong with its `text`.
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
            other => return Err(format!("{other} is no setting")),
        }
        Ok(())
    }

    /// Takes these nodes in place of those that are here, if there are any.
    fn name(&mut self, nodes: Vec<String>) {
        if !nodes.is_empty() {
            self.nodes = nodes;
        }
    }
}

fn read<T: Written>(text: &str) -> Result<Option<T>, String> {
    T::read(text).map(Some).ok_or_else(|| format!("it must be {}", T::EXPECTED))
}

/// The nodes' URLs. What is wrong with one is told without its password.
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
