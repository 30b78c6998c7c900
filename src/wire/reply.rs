//! I11: what a node's reply means, in one table.

use super::answer::Answer;
use super::failure::NodeFailure;
use crate::protocol::{LIMIT, Vote};
use redis::Value;
use std::time::Duration;

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// `SET key value NX PX ttl`, or `scripts/acquire.lua`.
    Acquire,
    /// `scripts/extend.lua`.
    Extend,
    /// `scripts/release.lua`.
    Release,
    /// `scripts/look.lua`.
    Look,
}

/// What the `replies` to one order say: the one at `verdict` is the answer. To an acquire, those that
/// follow it say how long the key that is in the way has to live, and what stands there. `secret` (the
/// value) is kept out of the reason.
pub(crate) fn answer_with_ttl(
    asked: Asked,
    replies: &[Value],
    verdict: usize,
    secret: &str,
) -> Answer {
    let Some(reply) = replies.get(verdict) else {
        return Answer::failed(NodeFailure::Unexpected("nothing".into()));
    };
    let mut answer = answer(asked, reply, secret);
    if asked == Asked::Acquire && answer.vote == Vote::Denied {
        for told in &replies[verdict + 1..] {
            match told {
                Value::Int(pttl) => {
                    answer.free_in = free_in(*pttl).or(stands_for_ever(*pttl));
                }
                Value::BulkString(value) => answer.found = Some(super::value::Value::of(value)),
                _ => {}
            }
        }
    }
    answer
}

/// How long a key with this PTTL has to live; `None` if it stands for ever.
fn free_in(pttl: i64) -> Option<Duration> {
    match pttl {
        -2 => Some(Duration::ZERO),
        pttl => u64::try_from(pttl).ok().map(Duration::from_millis),
    }
}

/// That a key which is in the way stands for ever is known: it is not free before any deadline.
fn stands_for_ever(pttl: i64) -> Option<Duration> {
    (pttl == -1).then_some(Duration::MAX)
}

/// The vote that `reply` is. `secret` (the value) is kept out of the reason.
#[allow(clippy::match_same_arms)] // It is a table, in the order of what was asked.
fn answer(asked: Asked, reply: &Value, secret: &str) -> Answer {
    let vote = match (asked, reply) {
        (Asked::Acquire, Value::Okay) => Vote::Granted,
        (Asked::Acquire, Value::Nil) => Vote::Denied,
        (Asked::Extend, Value::Int(pttl @ -1..)) => {
            return Answer { left: free_in(*pttl), ..Answer::of(Vote::Granted) };
        }
        (Asked::Extend, Value::Int(-2)) => Vote::Missing,
        (Asked::Extend, Value::Int(-3)) => Vote::Denied,
        (Asked::Release, Value::Int(1)) => Vote::Granted,
        (Asked::Release, Value::Int(0)) => Vote::Missing,
        (Asked::Release, Value::Int(-1)) => Vote::Denied,
        (Asked::Look, Value::Int(-2)) => Vote::Missing,
        (Asked::Look, Value::Int(pttl @ -1..)) => {
            return Answer { free_in: free_in(*pttl), ..Answer::of(Vote::Denied) };
        }
        (_, Value::Array(parts)) => return from_array(asked, parts, secret),
        // A lock of another format stands at the key: held, not broken.
        (_, Value::ServerError(error)) if error.code() == "WRONGTYPE" => Vote::Denied,
        (_, Value::ServerError(error)) => {
            return Answer::failed(NodeFailure::refused(error, secret));
        }
        (_, other) => return Answer::failed(NodeFailure::Unexpected(kind(other).into())),
    };
    Answer::of(vote)
}

/// What a script says of a key that is in the way: its PTTL and its place; or its value and its PTTL.
/// What `fenced.lua` says: the answer of the script that it ran, and a number.
fn from_array(asked: Asked, parts: &[Value], secret: &str) -> Answer {
    let denied = Answer::of(Vote::Denied);
    match (asked, parts) {
        (Asked::Acquire, [Value::Int(pttl), Value::Int(index), told @ ..]) => {
            let index = usize::try_from(*index - 1).unwrap_or_default();
            let found = match told {
                [Value::BulkString(value)] => Some(super::value::Value::of(value)),
                _ => None,
            };
            let free_in = free_in(*pttl).or(stands_for_ever(*pttl));
            Answer { free_in, index, found, ..denied }
        }
        (Asked::Look, [Value::BulkString(value), Value::Int(pttl)]) => {
            let found = Some(super::value::Value::of(value));
            Answer { free_in: free_in(*pttl), found, ..denied }
        }
        (
            Asked::Acquire | Asked::Extend | Asked::Release,
            [unfenced, Value::BulkString(digits)],
        ) => {
            let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
            match number.filter(|number| *number < LIMIT) {
                Some(number) => Answer { number: Some(number), ..answer(asked, unfenced, secret) },
                None => Answer::failed(NodeFailure::Unexpected("a counter out of range".into())),
            }
        }
        _ => Answer::failed(NodeFailure::Unexpected("an array".into())),
    }
}

/// What `TIME` answers, in microseconds since 1970.
pub(crate) fn time_us(reply: &Value) -> Option<u64> {
    let Value::Array(parts) = reply else {
        return None;
    };
    let [seconds, microseconds] = parts.as_slice() else {
        return None;
    };
    number(seconds)?.checked_mul(1_000_000)?.checked_add(number(microseconds)?)
}

/// A number that is sent as its digits.
fn number(reply: &Value) -> Option<u64> {
    let Value::BulkString(digits) = reply else { return None };
    let digit = |digit: &u8| digit.is_ascii_digit().then(|| u64::from(digit - b'0'));
    let add = |number: u64, next| number.checked_mul(10)?.checked_add(digit(next)?);
    if digits.is_empty() { None } else { digits.iter().try_fold(0, add) }
}

/// True if the node does not know the script it was asked to run.
pub(crate) fn is_noscript(reply: &Value) -> bool {
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
        use Asked::{Acquire, Extend, Look, Release};
        use Vote::{Denied, Failed, Granted, Missing};
        // The reply, and the vote that it is to an acquire, an extension, a release and a look.
        let table = [
            ("+OK\r\n", Granted, Failed, Failed, Failed),
            ("$-1\r\n", Denied, Failed, Failed, Failed),
            ("_\r\n", Denied, Failed, Failed, Failed),
            (":9000\r\n", Failed, Granted, Failed, Denied),
            (":1\r\n", Failed, Granted, Granted, Denied),
            (":0\r\n", Failed, Granted, Missing, Denied),
            (":-1\r\n", Failed, Granted, Denied, Denied),
            (":-2\r\n", Failed, Missing, Failed, Missing),
            (":-3\r\n", Failed, Denied, Failed, Failed),
            (":-4\r\n", Failed, Failed, Failed, Failed),
            ("$2\r\nhi\r\n", Failed, Failed, Failed, Failed),
            ("+QUEUED\r\n", Failed, Failed, Failed, Failed),
            ("*0\r\n", Failed, Failed, Failed, Failed),
            ("*2\r\n:70\r\n:2\r\n", Denied, Failed, Failed, Failed),
            ("*2\r\n$1\r\nv\r\n:70\r\n", Failed, Failed, Failed, Denied),
            ("-WRONGTYPE kind\r\n", Denied, Denied, Denied, Denied),
        ];
        for (wire, acquire, extend, release, look) in table {
            let votes = [(Acquire, acquire), (Extend, extend), (Release, release), (Look, look)];
            for (asked, vote) in votes {
                assert_eq!(answer(asked, &parsed(wire), "v").vote, vote, "{wire:?} to {asked:?}");
            }
        }
    }

    #[test]
    fn a_ttl_that_follows_tells_when_the_key_is_gone() {
        let free_in = |wire: &[&str]| {
            let replies: Vec<_> = wire.iter().map(|wire| parsed(wire)).collect();
            let answer = answer_with_ttl(Asked::Acquire, &replies, 0, "v");
            assert_eq!(answer.vote, Vote::Denied);
            answer.free_in
        };
        assert_eq!(free_in(&["$-1\r\n"]), None, "not asked");
        assert_eq!(free_in(&["$-1\r\n", ":70\r\n"]), Some(Duration::from_millis(70)));
        assert_eq!(free_in(&["$-1\r\n", "+OK\r\n", ":-2\r\n"]), Some(Duration::ZERO), "gone");
        let for_ever = free_in(&["$-1\r\n", "+OK\r\n", ":-1\r\n"]);
        assert_eq!(for_ever, Some(Duration::MAX), "for ever");
        assert_eq!(free_in(&["$-1\r\n", "-ERR no\r\n", "-ERR no\r\n"]), None);
    }

    #[test]
    fn what_stands_in_the_way_is_told_with_its_ttl() {
        let told = |wire: &[&str]| {
            let replies: Vec<_> = wire.iter().map(|wire| parsed(wire)).collect();
            let answer = answer_with_ttl(Asked::Acquire, &replies, 0, "v");
            (answer.vote, answer.free_in, answer.found)
        };
        let (nil, pttl, value) = ("$-1\r\n", ":70\r\n", "$2\r\nhi\r\n");
        let (in_70_ms, hi) = (Some(Duration::from_millis(70)), crate::wire::Value::of(b"hi"));
        let denied = (Vote::Denied, in_70_ms, Some(hi.clone()));
        assert_eq!(told(&[nil, "+OK\r\n", pttl, value]), denied);
        assert_eq!(told(&[nil, pttl, "-WRONGTYPE no\r\n"]), (Vote::Denied, in_70_ms, None));
        assert_eq!(told(&["+OK\r\n", pttl, value]), (Vote::Granted, None, None), "it is ours");
        let script = "*3\r\n:70\r\n:1\r\n$2\r\nhi\r\n";
        assert_eq!(told(&[script]), denied);
    }

    #[test]
    fn an_extension_tells_how_much_was_left() {
        let left = |wire| answer(Asked::Extend, &parsed(wire), "v").left;
        assert_eq!(left(":70\r\n"), Some(Duration::from_millis(70)));
        assert_eq!(left(":-1\r\n"), None, "for ever");
    }

    #[test]
    fn a_script_tells_what_is_in_the_way() {
        let set = answer(Asked::Acquire, &parsed("*2\r\n:70\r\n:2\r\n"), "v");
        assert_eq!((set.free_in, set.index), (Some(Duration::from_millis(70)), 1));
        let forever = answer(Asked::Acquire, &parsed("*2\r\n:-1\r\n:1\r\n"), "v");
        assert_eq!((forever.free_in, forever.index), (Some(Duration::MAX), 0));
        let look = answer(Asked::Look, &parsed("*2\r\n$2\r\nhi\r\n:9\r\n"), "v");
        assert_eq!(look.found, Some(crate::wire::Value::of(b"hi")));
        assert_eq!(look.free_in, Some(Duration::from_millis(9)));
        let kind = answer(Asked::Look, &parsed(":9\r\n"), "v");
        assert_eq!((kind.found, kind.free_in), (None, Some(Duration::from_millis(9))));
    }

    #[test]
    fn a_fenced_answer_is_the_one_inside_it_with_a_number() {
        let fenced = |asked: Asked, wire: &str| {
            let answer = answer(asked, &parsed(wire), "v");
            (answer.vote, answer.number)
        };
        for (asked, inside, vote) in [
            (Asked::Acquire, "+OK\r\n", Vote::Granted),
            (Asked::Acquire, "*2\r\n:70\r\n:1\r\n", Vote::Denied),
            (Asked::Extend, ":9000\r\n", Vote::Granted),
            (Asked::Extend, ":-2\r\n", Vote::Missing),
            (Asked::Release, ":-1\r\n", Vote::Denied),
        ] {
            let wire = format!("*2\r\n{inside}$16\r\n9007199254740991\r\n");
            assert_eq!(fenced(asked, &wire), (vote, Some(9_007_199_254_740_991)), "{wire:?}");
        }
        for digits in ["9007199254740992", "-000000000000001", "18446744073709551616", ""] {
            let wire = format!("*2\r\n+OK\r\n${}\r\n{digits}\r\n", digits.len());
            assert_eq!(fenced(Asked::Acquire, &wire), (Vote::Failed, None), "{digits}");
        }
        let look = "*2\r\n:1\r\n$1\r\n1\r\n";
        assert_eq!(fenced(Asked::Look, look), (Vote::Failed, None), "it is never fenced");
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
            for asked in [Asked::Acquire, Asked::Extend, Asked::Release, Asked::Look] {
                let answer = answer(asked, &reply, "v");
                assert_eq!(answer.vote, Vote::Failed);
                let reason = answer.failure.expect("a failed vote has a reason").to_string();
                assert_eq!(reason, format!("{code} some words"));
            }
            assert_eq!(is_noscript(&reply), code == "NOSCRIPT");
        }
    }
}
