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

#[test]
fn failures_that_only_other_settings_end_are_permanent() {
    for (text, is_permanent) in [
        ("WRONGPASS invalid username-password pair or user is disabled.", true),
        ("NOAUTH Authentication required.", true),
        ("NOPERM this user has no permissions to run the 'eval' command", true),
        ("ERR ACL failure in script: This user has no permissions to run the 'set' command", true),
        ("DENIED Redis is running in protected mode", true),
        ("ERR unknown command 'EVALSHA'", true),
        ("ERR DB index is out of range", true),
        ("COUNTER the key of a job counter holds another value: delete it", true),
        ("ERR max number of clients reached", false),
        ("LOADING Redis is loading the dataset in memory", false),
        ("READONLY You can't write against a read only replica.", false),
        ("OOM command not allowed", false),
        ("BUSY Redis is busy running a script", false),
        ("MOVED 866 10.0.0.7:6379", false),
        ("CLUSTERDOWN Hash slot not served", false),
    ] {
        let (code, detail) = text.split_once(' ').expect("a code and a text");
        let refused = NodeFailure::Refused { code: code.into(), detail: detail.into() };
        assert_eq!(refused.is_permanent(), is_permanent, "{text}");
        for reason in [text.to_owned(), format!("{CLOSED_BY_SERVER}{text}")] {
            let at_set_up = NodeFailure::Unreachable(reason.into());
            assert_eq!(at_set_up.is_permanent(), is_permanent, "{text}");
        }
    }
    for (reason, is_permanent) in [
        (NO_TLS, true),
        ("invalid peer certificate: UnknownIssuer", true),
        ("received fatal alert: CertificateRequired", true),
        ("HELLO 3 is answered in RESP2: a server with a renamed HELLO", true),
        ("connection refused", false),
        ("timeout while connecting; if the server does not speak TLS, use redis://", false),
        ("closed by the server without a reply to HELLO 3; if it speaks TLS, use rediss://", false),
        ("failed to lookup address information: Name or service not known", false),
    ] {
        let failure = NodeFailure::Unreachable(reason.into());
        assert_eq!(failure.is_permanent(), is_permanent, "{reason}");
    }
    assert!(NodeFailure::SameServer("a".into()).is_permanent());
    assert!(!NodeFailure::Replica.is_permanent() && !NodeFailure::ShutDown.is_permanent());
}
