//! I11: what a node's reply means, in one table.

use super::failure::NodeFailure;
use super::vote::Answer;
use crate::protocol::Vote;
use redis::Value;
use std::time::Duration;

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

/// The vote that the `replies` to one order are: the first says it, and a last one that follows says
/// how long the key that is in the way has to live. `secret` (the value) is kept out of the reason.
pub(super) fn answer_with_ttl(asked: Asked, replies: &[Value], secret: &str) -> Answer {
    let Some((first, rest)) = replies.split_first() else {
        return Answer::failed(NodeFailure::Unexpected("nothing".into()));
    };
    let free_in = match rest.last() {
        Some(Value::Int(pttl @ 0..)) => Some(Duration::from_millis(pttl.unsigned_abs())),
        Some(Value::Int(-2)) => Some(Duration::ZERO),
        _ => None,
    };
    Answer { free_in, ..answer(asked, first, secret) }
}

/// The vote that `reply` is. `secret` (the value) is kept out of the reason.
#[allow(clippy::match_same_arms)] // It is a table, in the order of what was asked.
fn answer(asked: Asked, reply: &Value, secret: &str) -> Answer {
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
        // The reply, and the vote that it is to an acquire, an extension and a release.
        let table = [
            ("+OK\r\n", Granted, Failed, Failed),
            ("$-1\r\n", Denied, Failed, Failed),
            ("_\r\n", Denied, Failed, Failed),
            (":9000\r\n", Failed, Granted, Failed),
            (":1\r\n", Failed, Granted, Granted),
            (":0\r\n", Failed, Granted, Missing),
            (":-1\r\n", Failed, Granted, Denied),
            (":-2\r\n", Failed, Missing, Failed),
            (":-3\r\n", Failed, Denied, Failed),
            (":-4\r\n", Failed, Failed, Failed),
            ("$2\r\nhi\r\n", Failed, Failed, Failed),
            ("+QUEUED\r\n", Failed, Failed, Failed),
            ("*0\r\n", Failed, Failed, Failed),
            ("-WRONGTYPE kind\r\n", Denied, Denied, Denied),
        ];
        for (wire, acquire, extend, release) in table {
            for (asked, vote) in [(Acquire, acquire), (Extend, extend), (Release, release)] {
                assert_eq!(answer(asked, &parsed(wire), "v").vote, vote, "{wire:?} to {asked:?}");
            }
        }
    }

    #[test]
    fn a_ttl_that_follows_tells_when_the_key_is_gone() {
        let free_in = |wire: &[&str]| {
            let replies: Vec<_> = wire.iter().map(|wire| parsed(wire)).collect();
            let answer = answer_with_ttl(Asked::Acquire, &replies, "v");
            assert_eq!(answer.vote, Vote::Denied);
            answer.free_in
        };
        assert_eq!(free_in(&["$-1\r\n"]), None, "not asked");
        assert_eq!(free_in(&["$-1\r\n", ":70\r\n"]), Some(Duration::from_millis(70)));
        assert_eq!(free_in(&["$-1\r\n", "+OK\r\n", ":-2\r\n"]), Some(Duration::ZERO), "gone");
        assert_eq!(free_in(&["$-1\r\n", "+OK\r\n", ":-1\r\n"]), None, "for ever");
        assert_eq!(free_in(&["$-1\r\n", "-ERR no\r\n", "-ERR no\r\n"]), None);
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
                let reason = answer.failure.expect("a failed vote has a reason").to_string();
                assert_eq!(reason, format!("{code} some words"));
            }
            assert_eq!(is_noscript(&reply), code == "NOSCRIPT");
        }
    }
}
