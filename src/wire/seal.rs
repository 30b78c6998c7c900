//! The `TIME` at the end of a pipeline.
//!
//! Replies are told apart by their order alone. One too many, before them, shifts all of them: then the last is not what a
//! `TIME` is answered with.

use super::command::ask_time;
use super::failure::NodeFailure;
use super::reply::time_us;
use super::requests::Requests;
use redis::Value;

/// Ends a pipeline so that its replies can be seen to be in step.
pub(crate) fn seal(requests: &mut Requests) {
    ask_time(requests);
}

/// The errors that a `TIME` is not refused with, but what stands before it can be.
const NEVER_TO_TIME: [&str; 7] =
    ["OOM", "READONLY", "MISCONF", "NOREPLICAS", "WRONGTYPE", "NOSCRIPT", "MOVED"];

/// What time it is by the last of the `replies`, in microseconds since 1970, if they [end so](seal); `TIME` may be
/// forbidden to our user. An error if they are out of step: not as many as `expected`, or the last is no time.
pub(crate) fn read_seal(
    replies: &[Value],
    expected: usize,
    is_sealed: bool,
) -> Result<Option<u64>, NodeFailure> {
    let out_of_step = || NodeFailure::Unexpected("replies out of step".into());
    match replies.last() {
        _ if replies.len() != expected => Err(out_of_step()),
        Some(Value::ServerError(error)) if is_sealed => {
            let is_to_time = !NEVER_TO_TIME.contains(&error.code());
            is_to_time.then_some(None).ok_or_else(out_of_step)
        }
        Some(last) if is_sealed => time_us(last).map(Some).ok_or_else(out_of_step),
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
        fn replies_count_only_if_there_are_as_many_as_were_announced(
            expected in 1..9_usize, came in 0..9_usize, is_sealed: bool,
        ) {
            let mut replies = vec![Value::Okay; came];
            if let Some(last) = replies.last_mut() {
                *last = time();
            }
            let read = read_seal(&replies, expected, is_sealed);
            let told = is_sealed.then_some(7_000_005);
            prop_assert_eq!(read.ok(), (came == expected).then_some(told));
        }
    }

    #[test]
    fn a_seal_is_a_time_or_an_error() {
        let error = redis::parse_redis_value(b"-NOPERM no\r\n").expect("an error reply");
        let read = |last: &Value| read_seal(&[Value::Okay, last.clone()], 2, true);
        assert_eq!(read(&time()), Ok(Some(7_000_005)));
        assert_eq!(read(&error), Ok(None), "it may not be asked");
        for code in NEVER_TO_TIME {
            let wire = format!("-{code} what a write is refused with\r\n");
            let shifted = redis::parse_redis_value(wire.as_bytes()).expect("an error reply");
            assert!(read(&shifted).is_err(), "a stray reply before a refused write: {code}");
        }
        for other in [Value::Okay, Value::Nil, Value::Int(7), Value::Array(vec![time()])] {
            assert!(read(&other).is_err(), "{other:?}");
        }
        assert_eq!(read_seal(&[Value::Okay], 1, false), Ok(None), "not asked");
    }
}
