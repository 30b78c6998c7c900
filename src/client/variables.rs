//! Settings from environment variables, one variable for each setting.

use super::address;
use super::builder::Builder;
use super::config::Config;
use crate::error::ConfigError;
use serde::Deserialize;
use serde::de::value::MapDeserializer;
use serde::de::{self, Deserializer, Expected, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::{fmt, iter};

/// Variables that the `quorlock` command sets for its child process, without the prefix [`COMMAND`]. These variables
/// are not settings, so `from_env` ignores them.
const OF_COMMAND: [&str; 3] = ["HELD", "RESOURCE", "TOKEN"];

const COMMAND: &str = "QUORLOCK";

impl Builder {
    /// Creates a builder from the environment variables whose names begin with `prefix` followed by `_`. With the
    /// prefix `QUORLOCK`, for example, the nodes come from `QUORLOCK_NODES` and the TTL comes from `QUORLOCK_TTL`; see
    /// [`Config::from_env`]. Later calls to the builder's methods override these settings.
    ///
    /// ```
    /// # fn main() -> Result<(), quorlock::ConfigError> {
    /// # // SAFETY: no other thread of this process accesses the environment concurrently.
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
    /// # // SAFETY: no other thread of this process accesses the environment concurrently.
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
        self,
        prefix: &str,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let prefix = prefix.trim_end_matches('_');
        if prefix.is_empty() {
            return Err(ConfigError::EmptyPrefix);
        }
        // Sorted, so that the reported error does not depend on the order of the environment.
        let settings: BTreeMap<String, OsString> = variables
            .into_iter()
            .filter_map(|(name, value)| {
                let name = name.to_string_lossy();
                let setting = name.strip_prefix(prefix)?.strip_prefix('_')?;
                let is_setting = prefix != COMMAND || !OF_COMMAND.contains(&setting);
                is_setting.then(|| (setting.to_owned(), value))
            })
            .collect();
        settings.into_iter().try_fold(self, |config, (setting, value)| {
            let set = parse_setting(&setting, value).map_err(|fault| fault.of(prefix, &setting))?;
            Ok(config.overridden_by(set))
        })
    }
}

/// Parses the value of one setting. `setting` is the name of its field in upper case.
fn parse_setting(setting: &str, value: OsString) -> Result<Config, VariableError> {
    let invalid = |reason: &str| VariableError::Invalid(reason.to_owned());
    let value = value.into_string().map_err(|_| invalid("not valid UTF-8"))?;
    let (upper, lower) = (setting.to_uppercase(), setting.to_lowercase());
    // A variable name with lower-case letters must not match a setting. It is converted to upper case, which matches
    // no field, because field names are in lower case.
    let field = if upper == setting { lower } else { upper };
    let config = Config::deserialize(MapDeserializer::new(iter::once((field, Text(value)))))?;
    for (at, url) in config.nodes.iter().enumerate() {
        address::parse(at + 1, url).map_err(|fault| invalid(&fault.to_string()))?;
    }
    Ok(config)
}

/// Deserializes the value of a variable. An optional setting deserializes as `Some`, because its variable exists.
struct Text(String);

impl<'de> Deserializer<'de> for Text {
    type Error = VariableError;

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, VariableError> {
        visitor.visit_some(self)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, VariableError> {
        visitor.visit_string(self.0)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl IntoDeserializer<'_, VariableError> for Text {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// The reason why a variable is rejected. Never contains the variable's value, which may be a password.
#[derive(Debug)]
enum VariableError {
    /// No setting has this name. Contains the names of all settings.
    Unknown(&'static [&'static str]),
    Invalid(String),
}

impl VariableError {
    fn of(self, prefix: &str, setting: &str) -> ConfigError {
        let name = format!("{prefix}_{setting}");
        match self {
            Self::Unknown(fields) => {
                let known = fields.iter().map(|field| format!("{prefix}_{}", field.to_uppercase()));
                ConfigError::UnknownVariable { name, known: known.collect::<Vec<_>>().join(", ") }
            }
            Self::Invalid(reason) => ConfigError::BadVariable { name, reason },
        }
    }
}

impl de::Error for VariableError {
    fn custom<T: fmt::Display>(reason: T) -> Self {
        Self::Invalid(reason.to_string())
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::Invalid(format!("must be {expected}"))
    }

    fn unknown_field(_: &str, expected: &'static [&'static str]) -> Self {
        Self::Unknown(expected)
    }
}

impl std::error::Error for VariableError {}

impl fmt::Display for VariableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
#[path = "variables_tests.rs"]
mod tests;
