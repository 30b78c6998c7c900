//! Commands that inspect a server.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::{
    Cmd, Connection, ConnectionAddr, FromRedisValue, IntoConnectionInfo, RedisConnectionInfo,
    RedisResult, Value,
};

use crate::Server;

const REPLY_LIMIT: Duration = Duration::from_secs(5);

/// Methods that inspect the server. Each method opens its own connection to database 0 as the
/// default user, and closes it again. A method panics if the server is killed or stopped, or does
/// not reply within 5 s.
impl Server {
    /// Executes a command: `server.cmd(&["SET", "k", "v"])`.
    ///
    /// # Panics
    ///
    /// Also panics if the reply is an error. See [`try_cmd`](Self::try_cmd).
    #[track_caller]
    pub fn cmd<A: AsRef<[u8]>>(&self, args: &[A]) -> Value {
        self.query(&command(args))
    }

    /// Executes a command.
    ///
    /// # Errors
    ///
    /// Returns an error if the reply is an error, or if the connection fails (no reply within 5 s).
    #[track_caller]
    pub fn try_cmd<A: AsRef<[u8]>>(&self, args: &[A]) -> RedisResult<Value> {
        command(args).query(&mut self.connection())
    }

    /// Returns the value of a string, or `None` if the key does not exist.
    #[track_caller]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        self.query(&command(&[b"GET", key.as_ref()]))
    }

    /// Sets a string without a ttl.
    #[track_caller]
    pub fn set(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.query::<()>(&command(&[b"SET", key.as_ref(), value.as_ref()]));
    }

    /// Returns the remaining ttl in milliseconds, -1 without a ttl, or -2 if the key does not
    /// exist.
    #[track_caller]
    pub fn pttl(&self, key: impl AsRef<[u8]>) -> i64 {
        self.query(&command(&[b"PTTL", key.as_ref()]))
    }

    /// Deletes a key. Returns true if the key existed.
    #[track_caller]
    pub fn del(&self, key: impl AsRef<[u8]>) -> bool {
        self.query(&command(&[b"DEL", key.as_ref()]))
    }

    /// Returns all keys of database 0, sorted.
    #[track_caller]
    #[must_use]
    pub fn keys(&self) -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = self.query(&command(&["KEYS", "*"]));
        keys.sort_unstable();
        keys
    }

    /// Returns the fields of a section of `INFO`: `server.info("server")["redis_version"]`.
    #[track_caller]
    #[must_use]
    pub fn info(&self, section: &str) -> BTreeMap<String, String> {
        let text: String = self.query(&command(&["INFO", section]));
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Returns the number of calls of `command`, a lower-case name. Includes calls by scripts.
    #[track_caller]
    #[must_use]
    pub fn calls(&self, command: &str) -> u64 {
        self.command_stat(command, "calls")
    }

    /// Returns the number of calls of `command` that the server rejected.
    #[track_caller]
    #[must_use]
    pub fn rejected_calls(&self, command: &str) -> u64 {
        self.command_stat(command, "rejected_calls")
    }

    /// Returns the number of calls of all commands since [`reset_stats`](Self::reset_stats).
    /// Includes calls by scripts and rejected calls.
    #[track_caller]
    #[must_use]
    pub fn all_calls(&self) -> u64 {
        let stats = self.info("commandstats");
        stats.values().map(|stats| stat(stats, "calls") + stat(stats, "rejected_calls")).sum()
    }

    /// Resets the call counters of all commands to 0.
    #[track_caller]
    pub fn reset_stats(&self) {
        self.query::<()>(&command(&["CONFIG", "RESETSTAT"]));
    }

    /// Returns the lines of `CLIENT LIST` for connections over TCP. The kit's own connections use a
    /// Unix socket.
    #[track_caller]
    #[must_use]
    pub fn clients(&self) -> Vec<String> {
        let text: String = self.query(&command(&["CLIENT", "LIST"]));
        text.lines().filter(|line| line.contains(" addr=127.0.0.1:")).map(str::to_owned).collect()
    }

    /// Deletes all keys of all databases.
    #[track_caller]
    pub fn flushall(&self) {
        self.query::<()>(&command(&["FLUSHALL"]));
    }

    #[track_caller]
    fn command_stat(&self, command: &str, field: &str) -> u64 {
        let stats = self.info("commandstats");
        stats.get(&format!("cmdstat_{command}")).map_or(0, |stats| stat(stats, field))
    }

    #[track_caller]
    fn query<T: FromRedisValue>(&self, command: &Cmd) -> T {
        match command.query(&mut self.connection()) {
            Ok(reply) => reply,
            Err(error) => panic!("the server on port {}: {error}", self.port()),
        }
    }

    #[track_caller]
    fn connection(&self) -> Connection {
        assert!(self.is_running(), "the server on port {} is not running", self.port());
        assert!(
            !self.is_stopped(),
            "the server on port {} is stopped: call cont() first",
            self.port()
        );
        match self.connect() {
            Ok(connection) => connection,
            Err(error) => panic!("cannot connect to the server on port {}: {error}", self.port()),
        }
    }

    fn connect(&self) -> RedisResult<Connection> {
        // The client sends no command while it connects, so the timeouts apply from the first
        // command.
        let settings = RedisConnectionInfo::default().set_skip_set_lib_name();
        let socket = ConnectionAddr::Unix(self.socket())
            .into_connection_info()?
            .set_redis_settings(settings);
        let mut connection = redis::Client::open(socket)?.get_connection()?;
        connection.set_read_timeout(Some(REPLY_LIMIT))?;
        connection.set_write_timeout(Some(REPLY_LIMIT))?;
        if let Some(password) = self.setup().default_password() {
            command(&["AUTH", password]).query::<()>(&mut connection)?;
        }
        Ok(connection)
    }
}

/// Returns the value of `field` in `stats`, a line of `INFO commandstats` such as
/// `calls=21,usec=175,rejected_calls=0`.
fn stat(stats: &str, field: &str) -> u64 {
    let number = stats.split(',').find_map(|pair| pair.strip_prefix(field)?.strip_prefix('='));
    number.map_or(0, |number| number.parse().expect("a number"))
}

fn command<A: AsRef<[u8]>>(args: &[A]) -> Cmd {
    let mut command = Cmd::new();
    for arg in args {
        command.arg(arg.as_ref());
    }
    command
}
