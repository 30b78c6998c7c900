//! Tests of the display, classification and serialization of failures.

use super::*;

#[cfg(feature = "serde")]
#[test]
fn failures_serialize_as_kind_and_detail() {
    use serde_json::{json, to_value};
    let (ago, counts_in) = (Duration::from_secs(3), Duration::from_secs(57));
    for (failure, expected) in [
        (NodeFailure::Replica, json!({"kind": "replica"})),
        (NodeFailure::Unexpected("nil".into()), json!({"kind": "unexpected", "detail": "nil"})),
        (
            NodeFailure::Timeout(Duration::from_millis(50)),
            json!({"kind": "timeout", "detail": 0.05}),
        ),
        (
            NodeFailure::Restarted { ago, counts_in },
            json!({"kind": "restarted", "detail": {"ago_seconds": 3.0, "counts_in_seconds": 57.0}}),
        ),
    ] {
        assert_eq!(to_value(&failure).expect("serializable"), expected);
    }
}

#[test]
fn short_duration_format() {
    let cases = [
        (0, "0.0ms"),
        (940, "0.9ms"),
        (9_940, "9.9ms"),
        (9_960, "10ms"),
        (50_000, "50ms"),
        (1_240_000, "1.2s"),
    ];
    for (us, text) in cases {
        assert_eq!(short(Duration::from_micros(us)), text);
    }
}

#[test]
fn unknown_command_error_omits_arguments() {
    let value = "0123456789abcdef0123456789abcdef";
    let text = format!("-ERR unknown command 'SET', with args beginning with: 'k' '{value}'\r\n");
    let reply = redis::parse_redis_value(text.as_bytes()).expect("an error reply");
    let redis::Value::ServerError(error) = reply else { panic!("not an error: {reply:?}") };
    let failure = NodeFailure::refused(&error, Some(value)).to_string();
    assert_eq!(failure, "ERR unknown command 'SET'");
    let text = format!("-ERR odd {value}\r\n");
    let reply = redis::parse_redis_value(text.as_bytes()).expect("an error reply");
    let redis::Value::ServerError(error) = reply else { panic!("not an error: {reply:?}") };
    assert_eq!(NodeFailure::refused(&error, Some(value)).to_string(), "ERR odd <value>");
    assert_eq!(NodeFailure::refused(&error, None).to_string(), format!("ERR odd {value}"));
}

#[test]
fn last_error_hides_values_and_is_truncated() {
    let told = |text: &str| {
        let reply = redis::parse_redis_value(format!("-{text}\r\n").as_bytes());
        let Ok(redis::Value::ServerError(error)) = reply else { panic!("not an error: {reply:?}") };
        last_error(&error)
    };
    for text in ["ERR max number of clients reached", "OOM", "ERR invalid bulk length 7f"] {
        assert_eq!(told(text), text);
    }
    let value = "0123456789abcdef0123456789abcdef";
    assert_eq!(told(&format!("ERR odd {value}:me, {value}")), "ERR odd <value>:me, <value>");
    assert_eq!(
        told(&format!("ERR unknown command 'SET', with args beginning with: '{value}'")),
        "ERR unknown command 'SET'"
    );
    assert_eq!(told(&format!("DENIED {}", "long ".repeat(99))).len(), MAX_ERROR);
}

#[test]
fn replica_and_noauth_errors_refuse_every_write() {
    let refused = |text: &str| {
        let reply = redis::parse_redis_value(format!("-{text}\r\n").as_bytes());
        let Ok(redis::Value::ServerError(error)) = reply else { panic!("not an error: {reply:?}") };
        NodeFailure::refused(&error, Some("secret"))
    };
    for (text, refuses_every_write, is_moved) in [
        ("READONLY You can't write against a read only replica.", true, false),
        (
            "READONLY You can't write against a read only replica. script: 9d, on @user_script:1.",
            true,
            false,
        ),
        (
            "ERR Error running script (call to f_9d): @user_script:1: -READONLY You can't write.",
            true,
            false,
        ),
        (
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            true,
            false,
        ),
        ("NOAUTH Authentication required.", true, false),
        ("MOVED 866 10.0.0.7:6379", false, true),
        ("LOADING Redis is loading the dataset in memory", false, false),
        ("NOPERM this user has no permissions", false, false),
        ("OOM command not allowed", false, false),
    ] {
        let failure = refused(text);
        assert_eq!(
            (failure.refuses_every_write(), failure.is_moved()),
            (refuses_every_write, is_moved),
            "{text}"
        );
    }
    assert!(NodeFailure::Replica.refuses_every_write(), "found during set-up");
    assert!(!NodeFailure::Stalled(Duration::ZERO).refuses_every_write());
}

#[test]
fn acl_error_omits_the_user_name() {
    let refusal = "User walter has no permissions to run the 'set' command";
    let unnamed = "This user has no permissions to run the 'set' command";
    assert_eq!(without_user(refusal), unnamed);
    assert_eq!(without_user(&format!("in script: {refusal}")), format!("in script: {unnamed}"));
    assert_eq!(without_user(unnamed), unnamed, "format of older servers");
    assert_eq!(without_user("User"), "User");
}
