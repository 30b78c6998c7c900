//! Configuration, identity and version of a server.

use std::collections::BTreeSet;
use std::fmt;

/// Configuration of a [`Server`](crate::server_model::Server). The [`Default`] is a master of Redis
/// 7.0.15 without persistence, without a password and without restrictions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Identity of the process. quorlock treats two servers with the same `run_id` as one.
    pub run_id: String,
    /// The product (Redis or Valkey) and its version.
    pub version: Version,
    /// The user name and password with which clients must authenticate, or `None` if clients need
    /// no password. `AUTH` without a user name means the user `default`.
    pub password: Option<(String, String)>,
    /// Whether the server is a replica whose master is unreachable. Such a replica refuses writes and
    /// serves reads.
    pub is_replica: bool,
    /// Number of connected replicas, as reported by `INFO`.
    pub replicas: u64,
    /// Number of Sentinels that subscribe to `__sentinel__:hello`.
    pub sentinels: u64,
    /// Whether the server writes an append-only file.
    pub appendonly: bool,
    /// Policy for syncing the append-only file to the disk.
    pub appendfsync: Fsync,
    /// Whether the server skips syncing the append-only file during a rewrite or a snapshot.
    pub no_appendfsync_on_rewrite: bool,
    /// Snapshot schedule, as `CONFIG GET save` returns it. Empty if the server takes no snapshots.
    pub save: String,
    /// Memory limit in bytes, or 0 for no limit. The model only reports the limit: it neither counts
    /// memory nor evicts keys.
    pub maxmemory: u64,
    /// Eviction policy. The model only reports the policy.
    pub maxmemory_policy: String,
    /// Number of keys evicted since the start. The model only reports this number.
    pub evicted_keys: u64,
    /// Number of databases.
    pub databases: u32,
    /// Commands that no user may run, for example `set`, `script|load`, or `script` for all its
    /// subcommands.
    pub forbidden: BTreeSet<String>,
    /// The client ID of the first connection after a start.
    pub first_client_id: u64,
}

/// Policy for syncing an append-only file to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// The server syncs the file before each reply.
    Always,
    /// The server syncs the file every second.
    EverySecond,
    /// The operating system decides when to sync the file.
    Never,
}

/// Product and version of a server. The version determines:
/// - the commands `HELLO` and `CLIENT TRACKING` (6.0), `CLIENT SETINFO` (7.2), `DELEX` (8.4),
///   `DELIFEQ` (Valkey 9.0) and `MSETEX` (Redis 8.4 and Valkey 9.1),
/// - whether `INFO` and `CONFIG GET` accept several names (7.0),
/// - the commands that are refused by a busy server, or by a replica without its master,
/// - whether a connection receives the push for its own change before or after the reply,
/// - the numbers that scripts pass to commands, and the values that scripts raise,
/// - the first words of an error.
///
/// The rest of an error is the text of Redis 7.0, except for text that quorlock parses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The Redis version with which the server is compatible.
    redis: [u32; 3],
    valkey: Option<[u32; 3]>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            run_id: "0".repeat(40),
            version: Version::redis(7, 0, 15),
            password: None,
            is_replica: false,
            replicas: 0,
            sentinels: 0,
            appendonly: false,
            appendfsync: Fsync::EverySecond,
            no_appendfsync_on_rewrite: false,
            save: String::new(),
            maxmemory: 0,
            maxmemory_policy: "noeviction".to_owned(),
            evicted_keys: 0,
            databases: 16,
            forbidden: BTreeSet::new(),
            first_client_id: 3,
        }
    }
}

impl Config {
    /// Returns true if no user may run the command. `command` is a name such as `set` or
    /// `script|load`.
    pub(crate) fn forbids(&self, command: &str) -> bool {
        let forbids = |name| !self.forbidden.is_empty() && self.forbidden.contains(name);
        forbids(command) || command.split_once('|').is_some_and(|(container, _)| forbids(container))
    }

    /// Returns true if the user name and password are valid. If no password is configured, the user
    /// `default` can log in with any password, and other users cannot log in.
    pub(crate) fn authenticates(&self, user: &[u8], password: &[u8]) -> bool {
        match &self.password {
            Some((name, secret)) => user == name.as_bytes() && password == secret.as_bytes(),
            None => user == b"default",
        }
    }

    pub(crate) fn setting(&self, name: &str) -> Option<String> {
        let yes_or_no = |is: bool| if is { "yes" } else { "no" }.to_owned();
        Some(match name {
            "appendonly" => yes_or_no(self.appendonly),
            "appendfsync" => self.appendfsync.to_string(),
            "no-appendfsync-on-rewrite" => yes_or_no(self.no_appendfsync_on_rewrite),
            "save" => self.save.clone(),
            "maxmemory" => self.maxmemory.to_string(),
            "maxmemory-policy" => self.maxmemory_policy.clone(),
            _ => return None,
        })
    }
}

impl Version {
    /// Creates a Redis version.
    pub const fn redis(major: u32, minor: u32, patch: u32) -> Self {
        Self { redis: [major, minor, patch], valkey: None }
    }

    /// Creates a Valkey version. Every Valkey version reports compatibility with Redis 7.2.4.
    pub const fn valkey(major: u32, minor: u32, patch: u32) -> Self {
        Self { redis: [7, 2, 4], valkey: Some([major, minor, patch]) }
    }

    /// Returns true if the model's errors for this version equal the real server's, byte for byte.
    pub fn has_exact_errors(&self) -> bool {
        self.redis[..2] == [7, 0] && !self.is_valkey()
    }

    /// Returns true if the server has the features of the Redis version `since`.
    pub(crate) fn has(&self, since: (u32, u32)) -> bool {
        (self.redis[0], self.redis[1]) >= since
    }

    pub(crate) fn is_valkey(&self) -> bool {
        self.valkey.is_some()
    }

    pub(crate) fn valkey_has(&self, since: (u32, u32)) -> bool {
        self.valkey.is_some_and(|[major, minor, _]| (major, minor) >= since)
    }

    /// Returns the command that deletes `key` only if it has a given value: `DELIFEQ` on Valkey or
    /// `DELEX` on Redis. The caller appends the value. Returns `None` if this version has neither
    /// command.
    pub fn conditional_delete(&self, key: &str) -> Option<Vec<String>> {
        let words = if self.valkey_has((9, 0)) {
            vec!["DELIFEQ", key]
        } else if self.has((8, 4)) {
            vec!["DELEX", key, "IFEQ"]
        } else {
            return None;
        };
        Some(words.into_iter().map(str::to_owned).collect())
    }

    /// Returns true if the server supports `MSETEX`, which can atomically set several keys if none of
    /// them exists.
    pub fn sets_all(&self) -> bool {
        self.has((8, 4)) || self.valkey_has((9, 1))
    }

    /// Returns true if a connection receives the push for its own command before the reply.
    ///
    /// Before Redis 7.0, the push always precedes the reply. Since Redis 7.4, the push for a flush
    /// precedes the reply, because the server delays the reply until the memory is freed.
    pub(crate) fn pushes_first(&self, is_flush: bool) -> bool {
        !self.has((7, 0)) || is_flush && self.has((7, 4))
    }

    /// Returns true if a script passes its integers to commands without an exponent, also multiples of 10^8.
    #[cfg(feature = "scripts")]
    pub(crate) fn formats_integers(&self) -> bool {
        self.is_valkey() || self.redis >= [7, 2, 5]
    }

    pub(crate) fn fields(&self) -> String {
        let fields = format!("redis_version:{}\r\n", dotted(self.redis));
        match self.valkey {
            Some(valkey) => {
                format!("{fields}server_name:valkey\r\nvalkey_version:{}\r\n", dotted(valkey))
            }
            None => fields,
        }
    }

    pub(crate) fn greeting(&self) -> (&'static str, String) {
        match self.valkey {
            Some(valkey) => ("valkey", dotted(valkey)),
            None => ("redis", dotted(self.redis)),
        }
    }
}

fn dotted([major, minor, patch]: [u32; 3]) -> String {
    format!("{major}.{minor}.{patch}")
}

impl fmt::Display for Fsync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Always => "always",
            Self::EverySecond => "everysec",
            Self::Never => "no",
        })
    }
}
