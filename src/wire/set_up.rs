//! Commands that set up a connection, and the parsing of their replies.

use super::capabilities::Capabilities;
use super::command::ask_time;
use super::facts::Facts;
use super::reply::time_us;
use super::requests::{INFO_REPLY, Requests};
use super::script;
use super::unknown_command::is_unknown_command;
use redis::{ErrorKind, RedisError, Value};
use std::sync::Arc;
use std::time::Duration;

/// Information about a server that the client reads when it sets up a connection. A field is `None` if the server does
/// not report its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerInfo {
    pub(crate) run_id: Option<Arc<str>>,
    /// The reason why `run_id` is unknown, or an empty string if it is known.
    pub(crate) no_run_id_reason: &'static str,
    /// Replication ID of the server's data set (`master_replid`).
    pub(crate) replid: Option<Arc<str>>,
    pub(crate) version: Option<Arc<str>>,
    pub(crate) is_replica: bool,
    /// Time since the server's start, in whole seconds.
    pub(crate) uptime: Option<Duration>,
    /// Whether the server fsyncs each write before it replies, also during a rewrite; `None` if unknown.
    pub(crate) is_durable: Option<bool>,
}

/// The sections of `INFO` that a set-up requests. Servers before Redis 7.0 accept only one section per command.
const SECTIONS: [&str; 3] = ["server", "replication", "persistence"];

/// The settings that a set-up requests. Servers before Redis 7.0 accept only one name per command.
const SETTINGS: [&str; 2] = ["appendfsync", "no-appendfsync-on-rewrite"];

#[derive(Debug)]
pub(crate) struct SetUp {
    pub(crate) client_id: Option<i64>,
    pub(crate) info: ServerInfo,
    /// The server's time in microseconds since 1970, or `None` if the server does not permit `TIME`.
    pub(crate) server_time_us: Option<u64>,
    pub(crate) can: Capabilities,
}

impl SetUp {
    /// Appends the commands that set up a connection. They request the time, the client ID, `INFO` and `CONFIG`, load
    /// the scripts and enable client tracking.
    pub(crate) fn ask(requests: &mut Requests) {
        ask_time(requests);
        requests.command("CLIENT", 1).arg("ID").end();
        requests.allow_reply(INFO_REPLY);
        for section in SECTIONS {
            requests.command("INFO", 1).arg(section).end();
        }
        for setting in SETTINGS {
            requests.command("CONFIG", 2).args(["GET", setting]).end();
        }
        for source in script::sources() {
            requests.command("SCRIPT", 2).args(["LOAD", source]).end();
        }
        ask_for_pushes(requests);
    }

    /// Parses the replies to the set-up commands. If the server does not support or permit a command, the requested
    /// information stays unknown. Any other error fails the set-up, because the error reports a temporary state.
    ///
    /// For example, a server can be `BUSY` with a script during a reconnect. If the client treated this error as an
    /// unknown run ID, the restart guard would exclude the server for a minute.
    pub(crate) fn read(replies: &[Value]) -> Result<Self, RedisError> {
        let [time, told @ ..] = replies else { return Err(out_of_step()) };
        let [id, rest @ ..] = told else { return Err(out_of_step()) };
        let (sections, rest) = rest.split_at_checked(SECTIONS.len()).ok_or_else(out_of_step)?;
        let (settings, rest) = rest.split_at_checked(SETTINGS.len()).ok_or_else(out_of_step)?;
        let scripts = script::sources().count();
        let (_, rest) = rest.split_at_checked(scripts).ok_or_else(out_of_step)?;
        let [tracking] = rest else { return Err(out_of_step()) };
        let tracks = *tracking == Value::Okay;
        let mut facts = Facts::default();
        for section in sections {
            facts.add_info(section);
        }
        for setting in settings {
            facts.add_config(setting);
        }
        let mut info = ServerInfo::of(&facts);
        info.no_run_id_reason = info_error(&sections[0]).unwrap_or(info.no_run_id_reason);
        // The caller rejects a replica with a clearer error.
        if let Some(error) = told.iter().find_map(temporary_error).filter(|_| !info.is_replica) {
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
        let can = Capabilities::of(&facts, tracks);
        Ok(Self { client_id, info, server_time_us: time_us(time), can })
    }
}

/// Appends the command that enables client tracking. In opt-in mode, the server tracks only the keys that the client
/// asks it to track.
pub(super) fn ask_for_pushes(requests: &mut Requests) {
    requests.command("CLIENT", 4).args(["TRACKING", "ON", "OPTIN", "NOLOOP"]).end();
}

fn temporary_error(reply: &Value) -> Option<RedisError> {
    match reply {
        Value::ServerError(error) => {
            let is_refusal =
                error.code() == "NOPERM" || is_unknown_command(error.code(), error.details());
            (!is_refusal).then(|| error.clone().into())
        }
        _ => None,
    }
}

/// The reason for an unknown run ID if the user lacks the ACL permission `+info`.
pub(crate) const INFO_NOT_PERMITTED: &str = "INFO is not permitted";

/// Returns the reason why the run ID is unknown if `reply`, the reply to `INFO`, is an error. Returns `None` otherwise.
fn info_error(reply: &Value) -> Option<&'static str> {
    match reply {
        Value::ServerError(error) if error.code() == "NOPERM" => Some(INFO_NOT_PERMITTED),
        Value::ServerError(_) => Some("the server does not support INFO"),
        _ => None,
    }
}

/// Returns the reason why `INFO` contains no run ID, or an empty string if it contains one.
fn no_run_id_reason(facts: &Facts) -> &'static str {
    match (facts.run_id(), facts.uptime()) {
        (Some(_), _) => "",
        (None, Some(_)) => "INFO reports no run_id",
        (None, None) => "INFO reports neither run_id nor uptime_in_seconds",
    }
}

fn out_of_step() -> RedisError {
    (ErrorKind::UnexpectedReturnType, "replies out of sync").into()
}

impl ServerInfo {
    pub(crate) fn of(facts: &Facts) -> Self {
        Self {
            run_id: facts.run_id().map(Arc::from),
            no_run_id_reason: no_run_id_reason(facts),
            replid: facts.replid().map(Arc::from),
            version: facts.version_number().map(Arc::from),
            uptime: facts.uptime(),
            is_durable: facts.is_durable(),
            is_replica: facts.is_replica(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Requests {
        let mut requests = Requests::default();
        SetUp::ask(&mut requests);
        requests
    }

    /// Parses the replies to the set-up commands: `info` is the reply to `INFO server`, and `config` is the reply to
    /// each `CONFIG GET`. The other replies are fixed.
    fn read(info: &str, config: &str) -> Result<SetUp, RedisError> {
        let time = "*2\r\n$1\r\n7\r\n$1\r\n5\r\n";
        let mut wires = vec![time, ":7\r\n", info, "$0\r\n\r\n", "$0\r\n\r\n", config, config];
        wires.resize(wires.len() + script::sources().count(), "$4\r\n0123\r\n");
        wires.push("+OK\r\n");
        let parse = |wire: &&str| redis::parse_redis_value(wire.as_bytes()).expect("a reply");
        SetUp::read(&wires.iter().map(parse).collect::<Vec<_>>())
    }

    fn bulk(text: &str) -> String {
        format!("${}\r\n{text}\r\n", text.len())
    }

    fn told(info: &str) -> ServerInfo {
        read(&bulk(info), "*0\r\n").expect("a good set-up").info
    }

    #[test]
    fn info_fields_are_parsed() {
        let info = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\nuptime_in_seconds:7\r\n\r\n# Replication\r\nrole:master\r\n";
        let parsed = told(info);
        assert_eq!(parsed.run_id.as_deref(), Some("abc"));
        assert_eq!(parsed.version.as_deref(), Some("7.0.15"));
        assert_eq!(parsed.uptime, Some(Duration::from_secs(7)));
        assert_eq!((parsed.is_replica, parsed.is_durable), (false, None));
        assert!(told("role:slave\r\n").is_replica);
        let no_run_id_reason = "INFO reports neither run_id nor uptime_in_seconds";
        assert_eq!(told(""), ServerInfo { no_run_id_reason, ..ServerInfo::default() });
        let without_run_id = told("uptime_in_seconds:7\r\nmaster_replid:0a\r\n");
        assert_eq!(without_run_id.no_run_id_reason, "INFO reports no run_id");
        assert_eq!((without_run_id.replid.as_deref(), parsed.no_run_id_reason), (Some("0a"), ""));
    }

    #[test]
    fn durable_means_appendfsync_always() {
        for (config, always) in [
            ("%1\r\n$11\r\nappendfsync\r\n$6\r\nalways\r\n", Some(true)),
            ("*2\r\n$11\r\nappendfsync\r\n$6\r\nalways\r\n", Some(true)),
            ("*2\r\n$11\r\nappendfsync\r\n$8\r\neverysec\r\n", Some(false)),
            (
                "%2\r\n$11\r\nappendfsync\r\n$6\r\nalways\r\n$25\r\nno-appendfsync-on-rewrite\r\n$3\r\nyes\r\n",
                Some(false),
            ),
            (
                "%2\r\n$11\r\nappendfsync\r\n$6\r\nalways\r\n$25\r\nno-appendfsync-on-rewrite\r\n$2\r\nno\r\n",
                Some(true),
            ),
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
    fn set_up_fails_on_temporary_errors_only() {
        for (may_not, no_run_id_reason) in [
            ("-NOPERM no\r\n", "INFO is not permitted"),
            ("-ERR unknown command 'INFO'\r\n", "the server does not support INFO"),
            ("-unsupported command\r\n", "the server does not support INFO"),
        ] {
            let set_up = read(may_not, may_not).expect("only the fact is unknown");
            assert_eq!((set_up.client_id, set_up.can.tracks), (Some(7), true));
            assert_eq!(set_up.server_time_us, Some(7_000_005));
            assert_eq!(set_up.info, ServerInfo { no_run_id_reason, ..ServerInfo::default() });
        }
        for code in ["BUSY", "LOADING", "MASTERDOWN", "NOAUTH", "OOM", "UNKILLABLE"] {
            let error = format!("-{code} some words\r\n");
            for refused in [read(&error, "*0\r\n"), read("$0\r\n\r\n", &error)] {
                assert_eq!(refused.expect_err("a failed set-up").code(), Some(code));
            }
        }
        let replica = read(&bulk("role:slave\r\n"), "-MASTERDOWN no link\r\n");
        assert!(replica.expect("a replica is no set-up error").info.is_replica);
        assert!(read("+OK\r\n", "+OK\r\n").is_err(), "replies do not match the commands");
    }

    #[test]
    fn set_up_commands_and_reply_count() {
        let asked = asked();
        let text = String::from_utf8(asked.bytes().to_vec()).expect("text");
        let names: Vec<_> =
            text.split("\r\n$").filter_map(|word| word.split("\r\n").nth(1)).collect();
        let begin = [
            "TIME",
            "CLIENT",
            "ID",
            "INFO",
            "server",
            "INFO",
            "replication",
            "INFO",
            "persistence",
        ];
        assert_eq!(&names[..begin.len()], begin);
        assert!(text.contains("TRACKING"));
        let replies = vec![Value::Okay; asked.len()];
        assert!(SetUp::read(&replies[1..]).is_err(), "a reply is missing");
    }

    #[test]
    fn tracking_needs_an_ok() {
        let tracks = |last: Value| {
            let mut replies = vec![Value::Nil, Value::Int(7)];
            replies.resize(2 + SECTIONS.len(), Value::BulkString(Vec::new()));
            replies.resize(asked().len() - 1, Value::Okay);
            replies.push(last);
            SetUp::read(&replies).expect("a good set-up").can.tracks
        };
        let refused = redis::parse_redis_value(b"-ERR no\r\n").expect("an error reply");
        assert!(tracks(Value::Okay));
        assert!(!tracks(refused));
    }
}
