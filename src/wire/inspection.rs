//! The commands with which [`Redlock::check`](crate::Redlock::check) inspects a server's configuration and permissions,
//! and the parsing of their replies.

use super::facts::Facts;
use super::failure::NodeFailure;
use super::keys::Keys;
use super::requests::{INFO_REPLY, Requests};
use super::script::{self, Form, RELEASE};
use super::set_up::ask_for_pushes;
use super::value::Value;
use redis::Value as Reply;

/// The settings that a check reads, each with its own `CONFIG GET`. Before Redis 7.0, the command accepts only one
/// name.
const SETTINGS: [&str; 3] = ["appendfsync", "no-appendfsync-on-rewrite", "save"];

/// The channel to which each Redis Sentinel subscribes on the servers that it monitors.
const SENTINELS: &str = "__sentinel__:hello";

/// The commands that a lock requires, in the order in which [`try_commands`] sends them.
const REQUIRED_COMMANDS: [&str; 8] =
    ["SET", "GET", "DEL", "PTTL", "PEXPIRE", "SCRIPT LOAD", "EVALSHA", "EVAL"];

#[derive(Debug)]
pub(crate) struct Inspection {
    pub(crate) facts: Facts,
    /// The required commands that the server refuses, each with the server's error.
    pub(crate) refusals: Vec<(&'static str, NodeFailure)>,
    /// The server's error if it refuses client tracking, or `None` if it sends invalidations.
    pub(crate) no_pushes: Option<NodeFailure>,
}

impl Inspection {
    /// Appends the commands of a check. The commands that a lock requires are tried with `keys` and `value`. The keys
    /// must not exist, so that these commands have no effect.
    pub(crate) fn ask(keys: &Keys, value: &Value, requests: &mut Requests) {
        requests.allow_reply(INFO_REPLY);
        ask_for_pushes(requests);
        requests.command("INFO", 0).end();
        requests.command("PUBSUB", 2).args(["NUMSUB", SENTINELS]).end();
        for setting in SETTINGS {
            requests.command("CONFIG", 2).args(["GET", setting]).end();
        }
        try_commands(requests, keys, value);
    }

    /// Parses the replies to a check. If replies are missing, returns an empty result. The errors in the result do not
    /// contain `value`.
    pub(crate) fn read(replies: &[Reply], value: &Value) -> Self {
        let mut read = Self { facts: Facts::default(), refusals: Vec::new(), no_pushes: None };
        let [pushes, info, sentinels, rest @ ..] = replies else { return read };
        let Some((settings, tried)) = rest.split_at_checked(SETTINGS.len()) else { return read };
        read.facts.add_info(info);
        read.facts.add_subscriber_counts(sentinels);
        for setting in settings {
            read.facts.add_config(setting);
        }
        read.no_pushes = refusal(pushes, value);
        let refused = REQUIRED_COMMANDS.into_iter().zip(tried);
        read.refusals =
            refused.filter_map(|(name, reply)| Some((name, refusal(reply, value)?))).collect();
        read
    }
}

fn try_commands(requests: &mut Requests, keys: &Keys, value: &Value) {
    let (key, value) = (keys.first(), value.bytes());
    let source = script::sources().next().unwrap_or_default();
    requests.command("SET", 5).arg(key).arg(value).args(["XX", "PX", "1"]).end();
    requests.command("GET", 1).arg(key).end();
    requests.command("DEL", 1).arg(key).end();
    requests.command("PTTL", 1).arg(key).end();
    requests.command("PEXPIRE", 2).arg(key).arg("1").end();
    requests.command("SCRIPT", 2).args(["LOAD", source]).end();
    RELEASE.call(Form::Hash, keys, None, 1, requests).arg(value).end();
    RELEASE.call(Form::Source, keys, None, 1, requests).arg(value).end();
}

/// Returns the server's error if it refused the command, and `None` otherwise. `NOSCRIPT` is not a refusal.
fn refusal(reply: &Reply, value: &Value) -> Option<NodeFailure> {
    match reply {
        Reply::ServerError(error) if error.code() != "NOSCRIPT" => {
            Some(NodeFailure::refused(error, value.secret()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> Reply {
        redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).expect("an error reply")
    }

    fn names() -> Vec<String> {
        let mut asked = Requests::default();
        let keys = Keys::one(b"k".as_slice().into());
        Inspection::ask(&keys, &Value::of(b"mine"), &mut asked);
        let text = String::from_utf8(asked.bytes().to_vec()).expect("text");
        // Each command starts with an asterisk, and no argument does.
        let commands = text.split("\r\n*").map(|command| command.split("\r\n").nth(2));
        commands.map(|name| name.expect("a name").to_owned()).collect()
    }

    #[test]
    fn refusals_name_the_refused_command() {
        let asked = names();
        let first = asked.len() - REQUIRED_COMMANDS.len();
        for (place, name) in REQUIRED_COMMANDS.into_iter().enumerate() {
            let mut replies = vec![Reply::Nil; asked.len()];
            let value = "0123456789abcdef0123456789abcdef";
            replies[first + place] = error(&format!("NOPERM not {value}"));
            let read = Inspection::read(&replies, &Value::of(value.as_bytes()));
            let failure =
                NodeFailure::Refused { code: "NOPERM".into(), detail: "not <value>".into() };
            assert_eq!((read.refusals, read.no_pushes), (vec![(name, failure)], None));
            assert!(
                name.starts_with(&asked[first + place]),
                "{name} is {:?}",
                asked[first + place]
            );
            replies[first + place] = error("NOSCRIPT no");
            assert_eq!(Inspection::read(&replies, &Value::of(b"mine")).refusals, []);
        }
    }

    #[test]
    fn check_replies_match_their_commands() {
        let bulk = |text: &str| Reply::BulkString(text.as_bytes().to_vec());
        let pair = |name: &str, value: &str| Reply::Array(vec![bulk(name), bulk(value)]);
        let asked = names();
        assert_eq!(asked[..4], ["CLIENT", "INFO", "PUBSUB", "CONFIG"]);
        let mut replies = vec![Reply::Okay; asked.len()];
        replies[0] = error("ERR no");
        replies[1] = bulk("run_id:abc\r\n");
        replies[2] = pair(SENTINELS, "2");
        for (place, setting) in SETTINGS.into_iter().enumerate() {
            replies[3 + place] = pair(setting, "yes");
        }
        let read = Inspection::read(&replies, &Value::of(b"mine"));
        let facts = &read.facts;
        assert_eq!((facts.run_id(), facts.sentinels()), (Some("abc"), Some(2)));
        assert!(facts.skips_fsync_on_rewrite());
        assert!(read.no_pushes.is_some(), "CLIENT TRACKING is refused");
        assert_eq!(read.refusals, []);
        let cut = Inspection::read(&replies[..4], &Value::of(b"mine"));
        assert_eq!(cut.facts.run_id(), None, "too few replies");
    }
}
