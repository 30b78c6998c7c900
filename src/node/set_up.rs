//! What is asked of a server when a connection to it is set up, and what it says of itself then.

use crate::protocol::Reading;
use crate::time::clock;
use crate::wire::{Facts, Role, script, time_us};
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, Pipeline, RedisError, Value};
use std::sync::Arc;
use std::time::Duration;

/// What a server says of itself when a connection is set up. Unknown where it may not be asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerInfo {
    pub(crate) run_id: Option<Arc<str>>,
    pub(crate) version: Option<Arc<str>>,
    pub(crate) is_replica: bool,
    /// How long the server has been up, in whole seconds.
    pub(crate) uptime: Option<Duration>,
    /// True if it writes every command to disk before it answers, false if not; unknown where it does not
    /// say so.
    pub(crate) is_durable: Option<bool>,
    /// The eviction policy, if the server may evict keys to save memory.
    pub(crate) evicting: Option<Arc<str>>,
}

/// What is asked for by `INFO`. Older servers take one section at a time.
const SECTIONS: [&str; 4] = ["server", "replication", "memory", "persistence"];

/// What a set-up has found.
pub(super) struct SetUp {
    pub(super) client_id: Option<i64>,
    pub(super) info: ServerInfo,
    /// What the server's clock shows, if it may be asked.
    pub(super) reading: Option<Reading>,
    /// True if the server tells when keys that we asked about change.
    pub(super) tracks: bool,
}

impl SetUp {
    /// Sets up `connection`: its id, what the server says of itself, the scripts, the pushes.
    pub(super) async fn ask(
        connection: &mut MultiplexedConnection,
        resp3: bool,
    ) -> Result<Self, RedisError> {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("TIME");
        pipeline.cmd("CLIENT").arg("ID");
        for section in SECTIONS {
            pipeline.cmd("INFO").arg(section);
        }
        pipeline.cmd("CONFIG").arg("GET").arg("appendfsync");
        for source in script::sources() {
            pipeline.cmd("SCRIPT").arg("LOAD").arg(source);
        }
        if resp3 {
            // RESP2 would answer OK, and could not push.
            pipeline.cmd("CLIENT").arg("TRACKING").arg("ON").arg("OPTIN").arg("NOLOOP");
        }
        let sent = clock::now();
        let replies = connection.send_packed_commands(&pipeline, 0, pipeline.len()).await?;
        let received = clock::now();
        let (time, rest) = replies.split_first().ok_or_else(out_of_step)?;
        let reading = time_us(time).map(|shown_us| Reading { sent, shown_us, received });
        Ok(Self { reading, ..Self::read(rest, resp3)? })
    }

    /// What `replies` say. Each command may be forbidden to our user, or unknown to the server: what
    /// is not known is not used. Any other error says that the server cannot be asked now.
    ///
    /// 1. A server is busy with a script, and a connection to it is made anew. 2. Its BUSY is taken for
    ///    a server that does not tell who it is, so it may have been restarted. 3. It counts for nothing
    ///    for a minute.
    fn read(replies: &[Value], resp3: bool) -> Result<Self, RedisError> {
        let ([id, rest @ ..], Some(last)) = (replies, replies.last()) else {
            return Err(out_of_step());
        };
        let (sections, rest) = rest.split_at_checked(SECTIONS.len()).ok_or_else(out_of_step)?;
        let mut facts = Facts::default();
        for reply in sections {
            facts.add_info(reply);
        }
        if let Some(reply) = rest.first() {
            facts.add_config(reply);
        }
        let info = ServerInfo::of(&facts);
        // A replica is none of ours, whatever else is wrong with it.
        if let Some(error) = replies.iter().find_map(obstacle).filter(|_| !info.is_replica) {
            return Err(error);
        }
        let are_texts = sections.iter().all(|reply| {
            use Value::{BulkString, ServerError, VerbatimString};
            matches!(reply, BulkString(_) | VerbatimString { .. } | ServerError(_))
        });
        let client_id = match id {
            Value::Int(id) if are_texts => Some(*id),
            Value::ServerError(_) if are_texts => None,
            _ => return Err(out_of_step()),
        };
        let tracks = resp3 && matches!(last, Value::Okay);
        Ok(Self { client_id, info, reading: None, tracks })
    }
}

/// The error of a server that cannot be asked now, if `reply` is one.
fn obstacle(reply: &Value) -> Option<RedisError> {
    match reply {
        Value::ServerError(error) if !matches!(error.code(), "NOPERM" | "ERR") => {
            Some(error.clone().into())
        }
        _ => None,
    }
}

fn out_of_step() -> RedisError {
    (ErrorKind::UnexpectedReturnType, "replies out of step").into()
}

impl ServerInfo {
    fn of(facts: &Facts) -> Self {
        let limited = facts.maxmemory().is_some_and(|bytes| bytes > 0);
        let policy = facts.eviction_policy().filter(|policy| limited && *policy != "noeviction");
        Self {
            run_id: facts.run_id().map(Arc::from),
            version: facts.release().map(Arc::from),
            uptime: facts.uptime(),
            is_durable: facts.is_durable(),
            is_replica: facts.role() == Some(Role::Replica),
            evicting: policy.map(Arc::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A set-up over RESP3 with these replies to `INFO server` and to `CONFIG GET`.
    fn read(info: &str, config: &str) -> Result<SetUp, RedisError> {
        let mut wires = vec![":7\r\n", info, "$0\r\n\r\n", "$0\r\n\r\n", "$0\r\n\r\n", config];
        wires.resize(wires.len() + script::sources().count(), "$4\r\n0123\r\n");
        wires.push("+OK\r\n");
        let parse = |wire: &&str| redis::parse_redis_value(wire.as_bytes()).expect("a reply");
        SetUp::read(&wires.iter().map(parse).collect::<Vec<_>>(), true)
    }

    fn bulk(text: &str) -> String {
        format!("${}\r\n{text}\r\n", text.len())
    }

    fn told(info: &str) -> ServerInfo {
        read(&bulk(info), "*0\r\n").expect("a good set-up").info
    }

    #[test]
    fn info_says_who_the_server_is() {
        let info = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\nuptime_in_seconds:7\r\n\r\n# Replication\r\nrole:master\r\n\
                    # Memory\r\nmaxmemory:1000\r\nmaxmemory_policy:allkeys-lru\r\n";
        let parsed = told(info);
        assert_eq!(parsed.run_id.as_deref(), Some("abc"));
        assert_eq!(parsed.version.as_deref(), Some("7.0.15"));
        assert_eq!(parsed.evicting.as_deref(), Some("allkeys-lru"));
        assert_eq!(parsed.uptime, Some(Duration::from_secs(7)));
        assert_eq!((parsed.is_replica, parsed.is_durable), (false, None));
        assert!(told("role:slave\r\n").is_replica);
        assert_eq!(told("maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n").evicting, None);
        assert_eq!(told(""), ServerInfo::default());
    }

    #[test]
    fn durable_is_who_writes_before_it_answers() {
        for (config, always) in [
            ("%1\r\n$11\r\nappendfsync\r\n$6\r\nalways\r\n", Some(true)),
            ("*2\r\n$11\r\nappendfsync\r\n$6\r\nalways\r\n", Some(true)),
            ("*2\r\n$11\r\nappendfsync\r\n$8\r\neverysec\r\n", Some(false)),
            ("*0\r\n", None),
            ("-NOPERM no\r\n", None),
        ] {
            let is_durable =
                |aof: &str| read(&bulk(aof), config).expect("a good set-up").info.is_durable;
            assert_eq!(is_durable("aof_enabled:1\r\n"), always, "{config:?}");
            assert_eq!(is_durable("aof_enabled:0\r\n"), Some(false));
            assert_eq!(is_durable(""), None);
        }
    }

    #[test]
    fn a_set_up_fails_with_any_error_but_that_it_may_not_be_asked() {
        for may_not in ["-NOPERM no\r\n", "-ERR unknown command 'INFO'\r\n"] {
            let set_up = read(may_not, may_not).expect("not known, and that is all");
            assert_eq!((set_up.client_id, set_up.tracks), (Some(7), true));
            assert_eq!(set_up.info, ServerInfo::default());
        }
        for code in ["BUSY", "LOADING", "MASTERDOWN", "NOAUTH", "OOM", "UNKILLABLE"] {
            let error = format!("-{code} some words\r\n");
            for refused in [read(&error, "*0\r\n"), read("$0\r\n\r\n", &error)] {
                assert_eq!(refused.err().expect("a failed set-up").code(), Some(code));
            }
        }
        let replica = read(&bulk("role:slave\r\n"), "-MASTERDOWN no link\r\n");
        assert!(replica.expect("told by name elsewhere").info.is_replica);
        assert!(read("+OK\r\n", "+OK\r\n").is_err(), "no answer to what was asked");
    }
}
