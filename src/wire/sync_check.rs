//! Sync check: a `TIME` command at the end of each pipeline, which detects that replies have shifted.
//!
//! The client matches replies to commands by order alone, so an extra reply shifts all later replies. The last reply
//! that the client assigns to the pipeline is then not a valid reply to `TIME`.

use super::command::ask_time;
use super::failure::NodeFailure;
use super::reply::time_us;
use super::requests::Requests;
use redis::Value;

pub(crate) fn append_sync_check(requests: &mut Requests) {
    ask_time(requests);
}

/// Codes of errors that `TIME` never returns, but other commands may return.
const NEVER_FROM_TIME: [&str; 7] =
    ["OOM", "READONLY", "MISCONF", "NOREPLICAS", "WRONGTYPE", "NOSCRIPT", "MOVED"];

/// Verifies that the replies are in sync, and returns the node's time in microseconds since 1970. Returns `None` if the
/// pipeline has no sync check, or if the node refuses `TIME`.
///
/// Fails if the number of replies is not `expected`, or if the last reply cannot be a reply to `TIME`.
pub(crate) fn verify_sync(
    replies: &[Value],
    expected: usize,
    has_sync_check: bool,
) -> Result<Option<u64>, NodeFailure> {
    let out_of_step = || NodeFailure::Unexpected("replies out of sync".into());
    match replies.last() {
        _ if replies.len() != expected => Err(out_of_step()),
        Some(Value::ServerError(error)) if has_sync_check => {
            let is_to_time = !NEVER_FROM_TIME.contains(&error.code());
            is_to_time.then_some(None).ok_or_else(out_of_step)
        }
        Some(last) if has_sync_check => time_us(last).map(Some).ok_or_else(out_of_step),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn time() -> Value {
        redis::parse_redis_value(b"*2\r\n$1\r\n7\r\n$1\r\n5\r\n").expect("a time")
    }

    proptest! {
        #[test]
        fn wrong_reply_count_is_out_of_sync(
            expected in 1..9_usize, came in 0..9_usize, has_sync_check: bool,
        ) {
            let mut replies = vec![Value::Okay; came];
            if let Some(last) = replies.last_mut() {
                *last = time();
            }
            let read = verify_sync(&replies, expected, has_sync_check);
            let told = has_sync_check.then_some(7_000_005);
            prop_assert_eq!(read.ok(), (came == expected).then_some(told));
        }
    }

    #[test]
    fn sync_check_accepts_a_time_or_a_time_error() {
        let error = redis::parse_redis_value(b"-NOPERM no\r\n").expect("an error reply");
        let read = |last: &Value| verify_sync(&[Value::Okay, last.clone()], 2, true);
        assert_eq!(read(&time()), Ok(Some(7_000_005)));
        assert_eq!(read(&error), Ok(None), "permitted");
        for code in NEVER_FROM_TIME {
            let wire = format!("-{code} what a write is refused with\r\n");
            let shifted = redis::parse_redis_value(wire.as_bytes()).expect("an error reply");
            assert!(read(&shifted).is_err(), "a stray reply before a refused write: {code}");
        }
        for other in [Value::Okay, Value::Nil, Value::Int(7), Value::Array(vec![time()])] {
            assert!(read(&other).is_err(), "{other:?}");
        }
        assert_eq!(verify_sync(&[Value::Okay], 1, false), Ok(None), "not requested");
    }
}
