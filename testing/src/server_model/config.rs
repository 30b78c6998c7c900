//! What a server is set to, and what it says of itself.

use std::collections::BTreeSet;
use std::fmt;

/// How a [`Server`](crate::server_model::Server) is set up. Starts from [`Default`]: a master of Redis 7.0.15 that
/// forgets its keys and lets everybody do everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Which process it is: quorlock takes two servers with the same one for one server.
    pub run_id: String,
    /// What it is.
    pub version: Version,
    /// A user and the password without which nobody is let in; the user whom nobody names is `default`.
    pub password: Option<(String, String)>,
    /// True if it follows another server, which it cannot reach: it takes no writes, and answers reads.
    pub is_replica: bool,
    /// How many replicas follow it.
    pub replicas: u64,
    /// How many Sentinels watch it.
    pub sentinels: u64,
    /// True if it writes an append-only file.
    pub appendonly: bool,
    /// How often that is forced to the disk.
    pub appendfsync: Fsync,
    /// True if nothing is forced to the disk while files are written anew.
    pub no_appendfsync_on_rewrite: bool,
    /// When it saves snapshots; empty if it does not.
    pub save: String,
    /// The bytes that it may use; 0 without a limit. Only told: nothing is counted or evicted.
    pub maxmemory: u64,
    /// Which keys it evicts.
    pub maxmemory_policy: String,
    /// How many keys it has evicted since it started.
    pub evicted_keys: u64,
    /// How many databases it has.
    pub databases: u32,
    /// What nobody may run: `set`, `script|load`, or `script` for all that begins with it.
    pub forbidden: BTreeSet<String>,
    /// The client id of the first connection after a start.
    pub first_client_id: u64,
}

/// How often an append-only file is forced to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Before each answer.
    Always,
    /// Each second.
    EverySecond,
    /// When the operating system likes to.
    Never,
}

/// Which server it is. What hangs on it: whether `HELLO` and `CLIENT TRACKING` (6.0), `CLIENT SETINFO` (7.2),
/// `DELEX` (8.4), `DELIFEQ` (Valkey 9.0) and `MSETEX` (Redis 8.4 and Valkey 9.1) are known, whether `INFO` and `CONFIG GET` take several names (7.0), what is answered by servers
/// that are busy or have old data, when a connection is pushed what it has done itself, and the first words
/// of refusals. Their other words are those of Redis 7.0, but where quorlock looks at them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The Redis whose commands it has.
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
    /// True if nobody may run the command, which is called `set` or `script|load`.
    pub(crate) fn forbids(&self, command: &str) -> bool {
        let container = command.split('|').next().unwrap_or(command);
        self.forbidden.contains(command) || self.forbidden.contains(container)
    }

    /// True if `user` is let in with `password`. The user `default` needs none where none is set.
    pub(crate) fn lets_in(&self, user: &[u8], password: &[u8]) -> bool {
        match &self.password {
            Some((name, secret)) => user == name.as_bytes() && password == secret.as_bytes(),
            None => user == b"default",
        }
    }

    /// A setting as `CONFIG GET` tells it.
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
    /// A Redis.
    pub const fn redis(major: u32, minor: u32, patch: u32) -> Self {
        Self { redis: [major, minor, patch], valkey: None }
    }

    /// A Valkey, which says that it is like Redis 7.2.4.
    pub const fn valkey(major: u32, minor: u32, patch: u32) -> Self {
        Self { redis: [7, 2, 4], valkey: Some([major, minor, patch]) }
    }

    /// True if the model answers as this server does to the last word of its errors.
    pub fn is_modelled_to_the_word(&self) -> bool {
        self.redis[..2] == [7, 0] && !self.is_valkey()
    }

    /// True if it has what came with this version of Redis.
    pub(crate) fn has(&self, since: (u32, u32)) -> bool {
        (self.redis[0], self.redis[1]) >= since
    }

    pub(crate) fn is_valkey(&self) -> bool {
        self.valkey.is_some()
    }

    /// True if it has what came with this version of Valkey.
    pub(crate) fn valkey_has(&self, since: (u32, u32)) -> bool {
        self.valkey.is_some_and(|[major, minor, _]| (major, minor) >= since)
    }

    /// The command with which it deletes a key if a value stands there, up to the value: `None` if it has none.
    pub fn deletes_by(&self, key: &str) -> Option<Vec<String>> {
        let words = if self.valkey_has((9, 0)) {
            vec!["DELIFEQ", key]
        } else if self.has((8, 4)) {
            vec!["DELEX", key, "IFEQ"]
        } else {
            return None;
        };
        Some(words.into_iter().map(str::to_owned).collect())
    }

    /// True if it sets several keys at once, and only if none exists: by `MSETEX`.
    pub fn sets_all(&self) -> bool {
        self.has((8, 4)) || self.valkey_has((9, 1))
    }

    /// True if what a connection's own command pushes to it comes before the reply: all of it in old
    /// versions, and in new ones a flush, whose reply waits for the memory to be freed.
    pub(crate) fn pushes_first(&self, is_flush: bool) -> bool {
        !self.has((7, 0)) || is_flush && self.has((7, 4))
    }

    /// The fields of `INFO` that tell it.
    pub(crate) fn fields(&self) -> String {
        let told = format!("redis_version:{}\r\n", dotted(self.redis));
        match self.valkey {
            Some(valkey) => {
                format!("{told}server_name:valkey\r\nvalkey_version:{}\r\n", dotted(valkey))
            }
            None => told,
        }
    }

    /// How it greets: its name and version.
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
