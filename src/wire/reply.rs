//! Conversion of a reply to a vote. An error or an unexpected reply is a failure of the node, and is never reported as
//! contention (I11).

use super::answer::{Answer, Conflict, Grant, RemainingTtl};
use super::failure::NodeFailure;
use super::period_record::PeriodRecord;
use super::value::Value as LockValue;
use crate::protocol::LIMIT;
use redis::Value;

/// The kind of a request, which determines how its reply is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// `SET key value NX PX ttl`, or a call of `scripts/acquire.lua`.
    Acquire,
    /// `MSETEX numkeys key value … NX PX ttl`.
    NativeAcquire,
    /// A call of `scripts/acquire_fenced.lua`.
    AcquireFenced,
    /// A call of `scripts/acquire_any.lua`.
    AcquireAny,
    /// A call of `scripts/extend.lua`.
    Extend,
    /// A call of `scripts/release.lua`.
    Release,
    /// A call of `scripts/release_any.lua`.
    ReleaseAny,
    /// A call of `scripts/release_shared.lua`.
    ReleaseShared,
    /// `DELIFEQ key value`, or `DELEX key IFEQ value`, for each key.
    NativeDelete,
    /// A call of `scripts/read.lua`.
    Read,
    /// A call of `scripts/period.lua`, before a job runs.
    Period,
    /// A call of `scripts/period.lua`, after a job has run.
    FinishPeriod,
}

const OUT_OF_RANGE: &str = "counter out of range";

/// Converts `reply` to the node's answer to `request`. `value` is this client's lock value, whose secret digits are
/// replaced in error texts.
#[allow(clippy::match_same_arms)] // The match is a table, in the order of the requests.
pub(super) fn answer(request: RequestKind, reply: &Value, value: &LockValue) -> Answer {
    let granted = || Answer::Granted(Grant::default());
    let denied = || Answer::Denied(Conflict::default());
    let missing = || Answer::Missing { counter: None };
    match (request, reply) {
        (RequestKind::Acquire, Value::Okay) => granted(),
        (RequestKind::Acquire, Value::Nil) => denied(),
        (RequestKind::AcquireFenced, Value::Int(number)) => match u64::try_from(*number) {
            Ok(number @ 1..LIMIT) => granted().with_counter(number),
            _ => Answer::unexpected(OUT_OF_RANGE),
        },
        (RequestKind::AcquireAny | RequestKind::ReleaseAny, Value::Int(place @ 1..)) => {
            Answer::Granted(Grant { key_index: index(*place), ..Grant::default() })
        }
        (
            RequestKind::NativeAcquire
            | RequestKind::Extend
            | RequestKind::Release
            | RequestKind::NativeDelete
            | RequestKind::Period
            | RequestKind::FinishPeriod,
            Value::Int(1),
        ) => granted(),
        (RequestKind::ReleaseShared, Value::Int(1)) => {
            Answer::Granted(Grant { leaves_readers: true, ..Grant::default() })
        }
        (RequestKind::ReleaseShared, Value::Int(2)) => granted(),
        (
            RequestKind::Extend
            | RequestKind::Release
            | RequestKind::ReleaseAny
            | RequestKind::ReleaseShared,
            Value::Int(0),
        ) => missing(),
        (
            RequestKind::Extend | RequestKind::Release | RequestKind::ReleaseShared,
            Value::Int(-1),
        ) => denied(),
        (RequestKind::Read, Value::Int(-2)) => missing(),
        (RequestKind::Read, Value::Int(pttl @ -1..)) => {
            Answer::Denied(Conflict { remaining: RemainingTtl::of(*pttl), ..Conflict::default() })
        }
        (_, Value::Array(parts)) => from_array(request, parts, value),
        // The key holds another type, for example a lock of another library. The lock is held, so this is no failure.
        (_, Value::ServerError(error)) if error.code() == "WRONGTYPE" => denied(),
        (_, Value::ServerError(error)) => {
            Answer::Failed(NodeFailure::refused(error, value.secret()))
        }
        (_, other) => Answer::unexpected(kind(other)),
    }
}

/// Parses an array reply. The array is a conflict `[pttl, index, value?]` from an acquire script, `[value, pttl]` from
/// the read script, `[counter, pttl, record]` from the period script, or `[result, counter]` from a fenced script or
/// from the read script with a counter.
fn from_array(request: RequestKind, parts: &[Value], ours: &LockValue) -> Answer {
    match (request, parts) {
        (
            RequestKind::Acquire | RequestKind::AcquireFenced | RequestKind::AcquireAny,
            [Value::Int(pttl), Value::Int(place), told @ ..],
        ) => {
            let value = match told {
                [Value::BulkString(value)] => Some(LockValue::of(value)),
                _ => None,
            };
            let (key_index, remaining) = (index(*place), RemainingTtl::of(*pttl));
            Answer::Denied(Conflict { remaining, value, key_index, ..Conflict::default() })
        }
        (RequestKind::Read, [Value::BulkString(value), Value::Int(pttl)]) => {
            let (remaining, value) = (RemainingTtl::of(*pttl), Some(LockValue::of(value)));
            Answer::Denied(Conflict { remaining, value, ..Conflict::default() })
        }
        (
            RequestKind::Period | RequestKind::FinishPeriod,
            [digits, Value::Int(pttl), Value::BulkString(record)],
        ) => match (request, number(digits)) {
            (RequestKind::Period, Some(number @ 0..LIMIT)) => {
                let (remaining, counter) = (RemainingTtl::of(*pttl), Some(number));
                let record = PeriodRecord::parse(record).map(Box::new);
                Answer::Denied(Conflict { remaining, counter, record, ..Conflict::default() })
            }
            (_, Some(0..LIMIT)) => Answer::Granted(Grant::default()), // taken already
            _ => Answer::unexpected(OUT_OF_RANGE),
        },
        (
            RequestKind::Acquire
            | RequestKind::AcquireFenced
            | RequestKind::AcquireAny
            | RequestKind::Extend
            | RequestKind::Release
            | RequestKind::Read,
            [unfenced, digits @ Value::BulkString(_)],
        ) if request != RequestKind::AcquireFenced || matches!(unfenced, Value::Array(_)) => {
            match number(digits).filter(|number| *number < LIMIT) {
                Some(number) => answer(request, unfenced, ours).with_counter(number),
                None => Answer::unexpected(OUT_OF_RANGE),
            }
        }
        _ => Answer::unexpected("an array"),
    }
}

/// Converts a reply to `TIME` to microseconds since 1970. Returns `None` for any other reply.
pub(crate) fn time_us(reply: &Value) -> Option<u64> {
    let Value::Array(parts) = reply else {
        return None;
    };
    let [seconds, microseconds] = parts.as_slice() else {
        return None;
    };
    number(seconds)?.checked_mul(1_000_000)?.checked_add(number(microseconds)?)
}

/// Converts an index of Lua, which starts at 1.
fn index(place: i64) -> usize {
    usize::try_from(place.saturating_sub(1)).unwrap_or_default()
}

fn number(reply: &Value) -> Option<u64> {
    let Value::BulkString(digits) = reply else { return None };
    let digit = |digit: &u8| digit.is_ascii_digit().then(|| u64::from(digit - b'0'));
    let add = |number: u64, next| number.checked_mul(10)?.checked_add(digit(next)?);
    if digits.is_empty() { None } else { digits.iter().try_fold(0, add) }
}

pub(super) fn is_noscript(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "NOSCRIPT")
}

/// Describes the type of a reply. The description never contains the content, which may be a lock's value.
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
        _ => "an unknown type",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Vote;
    use std::time::Duration;

    fn parsed(wire: &str) -> Value {
        redis::parse_redis_value(wire.as_bytes()).expect("a well-formed reply")
    }

    #[test]
    fn reply_to_vote_table() {
        use RequestKind::{Acquire, AcquireFenced, Extend, Read, Release};
        use Vote::{Denied, Failed, Granted, Missing};
        // Columns: reply, then its vote for an acquire, a fenced acquire, an extension, a release and a read.
        let table = [
            ("+OK\r\n", Granted, Failed, Failed, Failed, Failed),
            ("$-1\r\n", Denied, Failed, Failed, Failed, Failed),
            ("_\r\n", Denied, Failed, Failed, Failed, Failed),
            (":9000\r\n", Failed, Granted, Failed, Failed, Denied),
            (":9007199254740992\r\n", Failed, Failed, Failed, Failed, Denied),
            (":1\r\n", Failed, Granted, Granted, Granted, Denied),
            (":0\r\n", Failed, Failed, Missing, Missing, Denied),
            (":-1\r\n", Failed, Failed, Denied, Denied, Denied),
            (":-2\r\n", Failed, Failed, Failed, Failed, Missing),
            (":-3\r\n", Failed, Failed, Failed, Failed, Failed),
            ("$2\r\nhi\r\n", Failed, Failed, Failed, Failed, Failed),
            ("$2\r\n17\r\n", Failed, Failed, Failed, Failed, Failed),
            ("+QUEUED\r\n", Failed, Failed, Failed, Failed, Failed),
            ("*0\r\n", Failed, Failed, Failed, Failed, Failed),
            ("*2\r\n:70\r\n:2\r\n", Denied, Denied, Failed, Failed, Failed),
            ("*2\r\n$1\r\nv\r\n:70\r\n", Failed, Failed, Failed, Failed, Denied),
            ("-WRONGTYPE kind\r\n", Denied, Denied, Denied, Denied, Denied),
        ];
        for (wire, acquire, draw, extend, release, look) in table {
            let votes = [
                (Acquire, acquire),
                (AcquireFenced, draw),
                (Extend, extend),
                (Release, release),
                (Read, look),
            ];
            for (request, vote) in votes {
                let answer = answer(request, &parsed(wire), &LockValue::of(b"v"));
                assert_eq!(answer.vote(), vote, "{wire:?} to {request:?}");
            }
        }
    }

    #[test]
    fn script_replies_describe_the_conflict() {
        let told = |request, wire: &str| match answer(request, &parsed(wire), &LockValue::of(b"v"))
        {
            Answer::Denied(conflict) => conflict,
            other => panic!("{other:?}"),
        };
        let ms = |ms| Some(RemainingTtl::Expires(Duration::from_millis(ms)));
        let (hi, empty) = (Some(LockValue::of(b"hi")), Conflict::default());
        let set = told(RequestKind::Acquire, "*2\r\n:70\r\n:2\r\n");
        assert_eq!(set, Conflict { remaining: ms(70), key_index: 1, ..empty.clone() });
        let held = told(RequestKind::Acquire, "*3\r\n:70\r\n:1\r\n$2\r\nhi\r\n");
        assert_eq!(held, Conflict { remaining: ms(70), value: hi.clone(), ..empty.clone() });
        let forever = told(RequestKind::Acquire, "*2\r\n:-1\r\n:1\r\n");
        assert_eq!(forever, Conflict { remaining: Some(RemainingTtl::NoExpiry), ..empty.clone() });
        let nowhere = told(RequestKind::Acquire, "*2\r\n:70\r\n:-9223372036854775808\r\n");
        assert_eq!(nowhere.key_index, 0);
        let look = told(RequestKind::Read, "*2\r\n$2\r\nhi\r\n:9\r\n");
        assert_eq!(look, Conflict { remaining: ms(9), value: hi, ..empty.clone() });
        let kind = told(RequestKind::Read, ":9\r\n");
        assert_eq!(kind, Conflict { remaining: ms(9), ..empty.clone() });
        let kind = told(RequestKind::Read, ":-1\r\n");
        assert_eq!(kind, Conflict { remaining: Some(RemainingTtl::NoExpiry), ..empty });
    }

    #[test]
    fn release_any_reply_names_the_deleted_key() {
        let answer =
            |wire: &str| answer(RequestKind::ReleaseAny, &parsed(wire), &LockValue::of(b"v"));
        let grant = Answer::Granted(Grant { key_index: 2, ..Grant::default() });
        assert_eq!((answer(":3\r\n"), answer(":0\r\n").vote()), (grant, Vote::Missing));
        for invalid in [":-1\r\n", "+OK\r\n", "*2\r\n:1\r\n$1\r\n7\r\n"] {
            assert_eq!(answer(invalid).vote(), Vote::Failed, "{invalid:?}");
        }
    }

    #[test]
    fn acquire_any_reply_names_the_granted_key() {
        let answer =
            |wire: &str| answer(RequestKind::AcquireAny, &parsed(wire), &LockValue::of(b"v"));
        let grant =
            |key_index, counter| Answer::Granted(Grant { counter, key_index, ..Grant::default() });
        assert_eq!(answer(":1\r\n"), grant(0, None));
        assert_eq!(answer(":3\r\n"), grant(2, None));
        assert_eq!(answer("*2\r\n:2\r\n$2\r\n17\r\n"), grant(1, Some(17)));
        let Answer::Denied(conflict) = answer("*3\r\n:70\r\n:2\r\n$2\r\nhi\r\n") else {
            panic!("all keys are held")
        };
        assert_eq!((conflict.key_index, conflict.value), (1, Some(LockValue::of(b"hi"))));
        for invalid in [":0\r\n", ":-1\r\n", "+OK\r\n", "$-1\r\n"] {
            assert_eq!(answer(invalid).vote(), Vote::Failed, "{invalid:?}");
        }
    }

    #[test]
    fn period_reply_reports_counter_and_record_of_a_taken_period() {
        use RequestKind::{FinishPeriod, Period};
        let answer = |request, wire: &str| answer(request, &parsed(wire), &LockValue::of(b"v"));
        for (record, holder) in [("$0\r\n\r\n", None), ("$14\r\n17:start:1:2:v\r\n", Some("v"))] {
            let taken = &format!("*3\r\n$2\r\n17\r\n:70\r\n{record}");
            let Answer::Denied(found) = answer(Period, taken) else { panic!("17 is not lower") };
            assert_eq!((found.counter, found.remaining), (Some(17), RemainingTtl::of(70)));
            assert_eq!(
                found.record.map(|it| it.value),
                holder.map(|it| LockValue::of(it.as_bytes()))
            );
            assert_eq!(answer(FinishPeriod, taken).vote(), Vote::Granted);
        }
        for request in [Period, FinishPeriod] {
            assert_eq!(answer(request, ":1\r\n").vote(), Vote::Granted);
            for invalid in [
                ":0\r\n",
                "+OK\r\n",
                "$-1\r\n",
                "*3\r\n$1\r\nx\r\n:70\r\n$0\r\n\r\n",
                "-COUNTER x\r\n",
            ] {
                assert_eq!(answer(request, invalid).vote(), Vote::Failed, "{invalid:?}");
            }
        }
    }

    #[test]
    fn fenced_reply_adds_a_counter() {
        let fenced = |request: RequestKind, wire: &str| {
            let answer = answer(request, &parsed(wire), &LockValue::of(b"v"));
            (answer.vote(), answer.counter())
        };
        for (request, inside, vote) in [
            (RequestKind::Acquire, "+OK\r\n", Vote::Granted),
            (RequestKind::Acquire, "*2\r\n:70\r\n:1\r\n", Vote::Denied),
            (RequestKind::AcquireFenced, "*2\r\n:70\r\n:1\r\n", Vote::Denied),
            (RequestKind::Extend, ":1\r\n", Vote::Granted),
            (RequestKind::Extend, ":0\r\n", Vote::Missing),
            (RequestKind::Release, ":-1\r\n", Vote::Denied),
        ] {
            let wire = format!("*2\r\n{inside}$16\r\n9007199254740991\r\n");
            assert_eq!(fenced(request, &wire), (vote, Some(9_007_199_254_740_991)), "{wire:?}");
        }
        for digits in ["9007199254740992", "-000000000000001", "18446744073709551616", ""] {
            let wire = format!("*2\r\n+OK\r\n${}\r\n{digits}\r\n", digits.len());
            assert_eq!(fenced(RequestKind::Acquire, &wire), (Vote::Failed, None), "{digits}");
        }
        let drawn = answer(
            RequestKind::AcquireFenced,
            &parsed(":9007199254740991\r\n"),
            &LockValue::of(b"v"),
        );
        assert_eq!(
            drawn.counter(),
            Some(9_007_199_254_740_991),
            "the integer is the grant and the counter"
        );
        let twice = "*2\r\n:7\r\n$1\r\n7\r\n";
        assert_eq!(
            fenced(RequestKind::AcquireFenced, twice),
            (Vote::Failed, None),
            "a grant is not an array"
        );
        for (found, vote) in [
            (":-2\r\n", Vote::Missing),
            (":9\r\n", Vote::Denied),
            ("*2\r\n$1\r\nv\r\n:9\r\n", Vote::Denied),
        ] {
            let read = format!("*2\r\n{found}$1\r\n7\r\n");
            assert_eq!(fenced(RequestKind::Read, &read), (vote, Some(7)), "{found:?}");
        }
    }

    #[test]
    fn error_replies_are_failed_votes() {
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
            for request in
                [RequestKind::Acquire, RequestKind::Extend, RequestKind::Release, RequestKind::Read]
            {
                let answer = answer(request, &reply, &LockValue::of(b"v"));
                let Answer::Failed(reason) = answer else { panic!("{answer:?}") };
                assert_eq!(reason.to_string(), format!("{code} some words"));
            }
            assert_eq!(is_noscript(&reply), code == "NOSCRIPT");
        }
    }
}
