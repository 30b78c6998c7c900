//! Information that a server reports in its replies to `INFO`, `CONFIG GET` and `PUBSUB NUMSUB`.

use redis::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Replication role of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Role {
    /// A master, which accepts writes.
    Master,
    /// A replica of another server.
    Replica,
}

/// Data that a server keeps across a restart, according to its configuration.
///
/// Source: the page "Redis persistence" of the Redis documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Persistence {
    /// The server keeps no data.
    Nothing,
    /// The server keeps the data of its last snapshot (RDB).
    Snapshots,
    /// The server keeps an append-only file (AOF). Contains the file's fsync policy, or `None` if the policy is
    /// unknown.
    AppendOnly(Option<Fsync>),
}

/// Policy for syncing the append-only file to disk (`appendfsync`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Fsync {
    /// The server syncs the file before each reply (`always`), so acknowledged writes survive a restart.
    Always,
    /// The server syncs the file every second (`everysec`).
    EverySecond,
    /// The server does not sync the file (`no`). The operating system decides when to write its buffers to disk.
    Never,
}

/// The fields of `INFO`, the settings of `CONFIG GET` and the subscriber counts of one server. Values that the server
/// does not report are absent.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    info: BTreeMap<String, String>,
    config: BTreeMap<String, String>,
    /// Number of subscribers of each channel.
    subscriber_counts: BTreeMap<String, String>,
}

impl Facts {
    /// Adds the fields in a reply to `INFO`. Ignores an error reply.
    pub(crate) fn add_info(&mut self, reply: &Value) {
        let text = word(reply).unwrap_or_default();
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        self.info.extend(fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())));
    }

    /// Adds the settings in a reply to `CONFIG GET`. Ignores an error reply.
    pub(crate) fn add_config(&mut self, reply: &Value) {
        self.config.extend(pairs(reply));
    }

    /// Adds the subscriber counts in a reply to `PUBSUB NUMSUB`. Ignores an error reply.
    pub(crate) fn add_subscriber_counts(&mut self, reply: &Value) {
        self.subscriber_counts.extend(pairs(reply));
    }

    pub(crate) fn run_id(&self) -> Option<&str> {
        self.field("run_id")
    }

    /// Returns the replication ID of the server's data set.
    pub(crate) fn replid(&self) -> Option<&str> {
        self.field("master_replid")
    }

    /// Returns the name and the version of the server, for example `Valkey 9.1.2`.
    pub(crate) fn version(&self) -> Option<String> {
        let told = self.field("valkey_version").map(|version| format!("Valkey {version}"));
        told.or_else(|| Some(format!("Redis {}", self.field("redis_version")?)))
    }

    /// Returns the version of the server without its name, for example `9.1.2`.
    pub(crate) fn version_number(&self) -> Option<&str> {
        self.field("valkey_version").or_else(|| self.field("redis_version"))
    }

    /// Returns the major and minor version of Redis that the server is compatible with.
    pub(crate) fn redis_version(&self) -> Option<(u32, u32)> {
        self.field("redis_version").and_then(major_and_minor)
    }

    /// Returns the major and minor version of Valkey, or `None` for other servers.
    pub(crate) fn valkey_version(&self) -> Option<(u32, u32)> {
        self.field("valkey_version").and_then(major_and_minor)
    }

    pub(crate) fn role(&self) -> Option<Role> {
        match self.field("role")? {
            "master" => Some(Role::Master),
            "slave" | "replica" => Some(Role::Replica),
            _ => None,
        }
    }

    pub(crate) fn is_replica(&self) -> bool {
        self.role() == Some(Role::Replica)
    }

    pub(crate) fn uptime(&self) -> Option<Duration> {
        self.number("uptime_in_seconds").map(Duration::from_secs)
    }

    pub(crate) fn replicas(&self) -> u64 {
        self.number("connected_slaves").unwrap_or_default()
    }

    /// Returns the number of Sentinels that monitor the server and may promote a replica, or `None` if unknown.
    pub(crate) fn sentinels(&self) -> Option<u64> {
        self.subscriber_counts.values().next()?.parse().ok()
    }

    /// Returns the memory limit in bytes, or 0 if the server has no limit. Returns `None` if unknown.
    pub(crate) fn maxmemory(&self) -> Option<u64> {
        self.number("maxmemory")
    }

    pub(crate) fn eviction_policy(&self) -> Option<&str> {
        self.field("maxmemory_policy")
    }

    /// Returns the eviction policy if the server can evict unexpired keys, which requires a memory limit. Returns
    /// `None` otherwise.
    pub(crate) fn evicting(&self) -> Option<&str> {
        let is_limited = self.maxmemory().is_some_and(|bytes| bytes > 0);
        self.eviction_policy().filter(|policy| is_limited && *policy != "noeviction")
    }

    /// Returns the number of keys evicted since the server started.
    pub(crate) fn evicted(&self) -> u64 {
        self.number("evicted_keys").unwrap_or_default()
    }

    pub(crate) fn persistence(&self) -> Option<Persistence> {
        if self.appends()? {
            return Some(Persistence::AppendOnly(self.fsync()));
        }
        let save = self.config.get("save")?;
        Some(if save.is_empty() { Persistence::Nothing } else { Persistence::Snapshots })
    }

    /// Returns whether the server fsyncs each write before it replies, also during a rewrite. Returns `None` if this is
    /// unknown.
    pub(crate) fn is_durable(&self) -> Option<bool> {
        if !self.appends()? || self.skips_fsync_on_rewrite() {
            return Some(false);
        }
        Some(self.fsync()? == Fsync::Always)
    }

    fn appends(&self) -> Option<bool> {
        self.number("aof_enabled").map(|on| on == 1)
    }

    fn fsync(&self) -> Option<Fsync> {
        match self.config.get("appendfsync")?.as_str() {
            "always" => Some(Fsync::Always),
            "everysec" => Some(Fsync::EverySecond),
            "no" => Some(Fsync::Never),
            _ => None,
        }
    }

    /// Returns true if the server does not fsync while a background rewrite or save is running.
    pub(crate) fn skips_fsync_on_rewrite(&self) -> bool {
        self.config.get("no-appendfsync-on-rewrite").is_some_and(|rests| rests == "yes")
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.info.get(name).map(String::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }
}

fn major_and_minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Returns the name-value pairs of a map. In RESP2, an array represents the map.
fn pairs(reply: &Value) -> Vec<(String, String)> {
    let pair = |name: &Value, value: &Value| Some((word(name)?.into(), word(value)?.into()));
    match reply {
        Value::Map(pairs) => pairs.iter().filter_map(|(name, value)| pair(name, value)).collect(),
        Value::Array(list) => {
            list.chunks_exact(2).filter_map(|two| pair(&two[0], &two[1])).collect()
        }
        _ => Vec::new(),
    }
}

fn word(reply: &Value) -> Option<Cow<'_, str>> {
    match reply {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes)),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => Some(text.into()),
        Value::Int(number) => Some(number.to_string().into()),
        _ => None,
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Master => "master",
            Self::Replica => "replica",
        })
    }
}

impl fmt::Display for Persistence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "no persistence",
            Self::Snapshots => "snapshots",
            Self::AppendOnly(None) => "appendonly, appendfsync unknown",
            Self::AppendOnly(Some(Fsync::Always)) => "appendfsync always",
            Self::AppendOnly(Some(Fsync::EverySecond)) => "appendfsync everysec",
            Self::AppendOnly(Some(Fsync::Never)) => "appendfsync no",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(info: &str, config: &[(&str, &str)]) -> Facts {
        let bytes = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let map = |pairs: &[(&str, &str)]| {
            Value::Map(pairs.iter().map(|(name, value)| (bytes(name), bytes(value))).collect())
        };
        let mut facts = Facts::default();
        facts.add_info(&bytes(info));
        facts.add_config(&map(config));
        facts
    }

    #[test]
    fn level_is_the_compatible_redis_version() {
        let old = facts("redis_version:5.0.14\r\n", &[]);
        assert_eq!(
            (old.version().as_deref(), old.redis_version()),
            (Some("Redis 5.0.14"), Some((5, 0)))
        );
        let valkey = facts("redis_version:7.2.4\r\nvalkey_version:9.1.2\r\n", &[]);
        assert_eq!(valkey.version().as_deref(), Some("Valkey 9.1.2"));
        assert_eq!(valkey.redis_version(), Some((7, 2)));
        assert_eq!(facts("redis_version:new\r\n", &[]).redis_version(), None);
    }

    #[test]
    fn missing_fields_are_none() {
        let silent = facts("", &[]);
        assert_eq!((silent.version(), silent.redis_version(), silent.role()), (None, None, None));
        assert_eq!((silent.persistence(), silent.maxmemory(), silent.uptime()), (None, None, None));
        let no_config = facts("aof_enabled:0\r\n", &[]);
        assert_eq!(no_config.persistence(), None, "it may save snapshots");
        let no_config = facts("aof_enabled:1\r\n", &[]);
        assert_eq!(no_config.persistence(), Some(Persistence::AppendOnly(None)));
    }

    #[test]
    fn evicting_needs_a_memory_limit_and_an_evicting_policy() {
        let evicting =
            |info: &str, config: &[(&str, &str)]| facts(info, config).evicting().map(str::to_owned);
        let lru = "maxmemory:1000\r\nmaxmemory_policy:allkeys-lru\r\n";
        assert_eq!(evicting(lru, &[]).as_deref(), Some("allkeys-lru"));
        for harmless in [
            "maxmemory:1000\r\nmaxmemory_policy:noeviction\r\n",
            "maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n",
            "maxmemory_policy:allkeys-lru\r\n",
            "maxmemory:1000\r\n",
        ] {
            assert_eq!(evicting(harmless, &[]), None, "{harmless}");
        }
    }

    #[test]
    fn resp2_arrays_are_parsed_as_maps() {
        let bytes = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let mut facts = Facts::default();
        facts.add_config(&Value::Array(vec![bytes("no-appendfsync-on-rewrite"), bytes("yes")]));
        facts.add_config(&Value::Nil);
        assert!(facts.skips_fsync_on_rewrite());
    }
}
