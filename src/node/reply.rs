//! I11: what a node's reply means, in one table.

use super::failure::NodeFailure;
use super::vote::Answer;
use crate::protocol::Vote;
use redis::Value;

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// `SET key value NX PX ttl`.
    Acquire,
    /// `scripts/extend.lua`.
    Extend,
    /// `scripts/release.lua`.
    Release,
}

/// The vote that `reply` is. `secret` (the value) is kept out of the reason.
pub(super) fn answer(asked: Asked, reply: &Value, secret: &str) -> Answer {
    let vote = match (asked, reply) {
        (Asked::Acquire, Value::Okay) => Vote::Granted,
        (Asked::Acquire, Value::Nil) => Vote::Denied,
        (Asked::Extend, Value::Int(-1..)) => Vote::Granted,
        (Asked::Extend, Value::Int(-2)) => Vote::Missing,
        (Asked::Extend, Value::Int(-3)) => Vote::Denied,
        (Asked::Release, Value::Int(1)) => Vote::Granted,
        (Asked::Release, Value::Int(0)) => Vote::Missing,
        (Asked::Release, Value::Int(-1)) => Vote::Denied,
        // A lock of another format stands at the key: held, not broken.
        (_, Value::ServerError(error)) if error.code() == "WRONGTYPE" => Vote::Denied,
        (_, Value::ServerError(error)) => {
            return Answer::failed(NodeFailure::refused(error, secret));
        }
        (_, other) => return Answer::failed(NodeFailure::Unexpected(kind(other).into())),
    };
    Answer::of(vote)
}

/// True if the node does not know the script it was asked to run.
pub(super) fn is_noscript(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "NOSCRIPT")
}

/// The kind of a reply; never its content, which may hold a value.
fn kind(reply: &Value) -> &'static str {
    match reply {
        Value::Nil => "nil",
        Value::Int(_) => "an integer out of range",
        Value::BulkString(_) | Value::SimpleString(_) | Value::VerbatimString { .. } => "a string",
        Value::Array(_) | Value::Set(_) => "an array",
        Value::Okay => "OK",
        Value::Map(_) | Value::Attribute { .. } => "a map",
        Value::Double(_) | Value::BigNumber(_) => "a number",
        Value::Boolean(_) => "a boolean",
        _ => "something unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(wire: &str) -> Value {
        redis::parse_redis_value(wire.as_bytes()).expect("a well-formed reply")
    }

    #[test]
    fn each_reply_is_one_vote() {
        use Asked::{Acquire, Extend, Release};
        use Vote::{Denied, Failed, Granted, Missing};
        let table = [
            (
                "+OK\r\n",
                [(Acquire, Granted), (Extend, Failed), (Release, Failed)],
            ),
            (
                "$-1\r\n",
                [(Acquire, Denied), (Extend, Failed), (Release, Failed)],
            ),
            (
                "_\r\n",
                [(Acquire, Denied), (Extend, Failed), (Release, Failed)],
            ),
            (
                ":9000\r\n",
                [(Acquire, Failed), (Extend, Granted), (Release, Failed)],
            ),
            (
                ":1\r\n",
                [(Acquire, Failed), (Extend, Granted), (Release, Granted)],
            ),
            (
                ":0\r\n",
                [(Acquire, Failed), (Extend, Granted), (Release, Missing)],
            ),
            (
                ":-1\r\n",
                [(Acquire, Failed), (Extend, Granted), (Release, Denied)],
            ),
            (
                ":-2\r\n",
                [(Acquire, Failed), (Extend, Missing), (Release, Failed)],
            ),
            (
                ":-3\r\n",
                [(Acquire, Failed), (Extend, Denied), (Release, Failed)],
            ),
            (
                ":-4\r\n",
                [(Acquire, Failed), (Extend, Failed), (Release, Failed)],
            ),
            (
                "$2\r\nhi\r\n",
                [(Acquire, Failed), (Extend, Failed), (Release, Failed)],
            ),
            (
                "+QUEUED\r\n",
                [(Acquire, Failed), (Extend, Failed), (Release, Failed)],
            ),
            (
                "*0\r\n",
                [(Acquire, Failed), (Extend, Failed), (Release, Failed)],
            ),
            (
                "-WRONGTYPE kind\r\n",
                [(Acquire, Denied), (Extend, Denied), (Release, Denied)],
            ),
        ];
        for (wire, votes) in table {
            for (asked, vote) in votes {
                assert_eq!(
                    answer(asked, &parsed(wire), "v").vote,
                    vote,
                    "{wire:?} to {asked:?}"
                );
            }
        }
    }

    #[test]
    fn every_error_is_failed_with_its_reason() {
        for code in [
            "LOADING",
            "READONLY",
            "MISCONF",
            "OOM",
            "NOAUTH",
            "NOPERM",
            "BUSY",
            "NOSCRIPT",
            "MASTERDOWN",
            "CLUSTERDOWN",
            "MOVED",
            "TRYAGAIN",
            "EXECABORT",
            "UNKILLABLE",
            "ERR",
            "WRONGPASS",
            "NOREPLICAS",
            "CROSSSLOT",
        ] {
            let reply = parsed(&format!("-{code} some words\r\n"));
            for asked in [Asked::Acquire, Asked::Extend, Asked::Release] {
                let answer = answer(asked, &reply, "v");
                assert_eq!(answer.vote, Vote::Failed);
                let reason = answer
                    .failure
                    .expect("a failed vote has a reason")
                    .to_string();
                assert_eq!(reason, format!("{code} some words"));
            }
            assert_eq!(is_noscript(&reply), code == "NOSCRIPT");
        }
    }
}
