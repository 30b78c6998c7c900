//! Serialization of failures and facts (feature `serde`).
//!
//! Conventions, here and in other modules: field names and kinds are stable and in snake case. Times are in seconds.
//! Objects with a `kind` also have the displayed text as `message`.

use super::facts::{Fsync, Persistence};
use super::failure::NodeFailure;
use serde::{Serialize, Serializer};
use std::time::Duration;

/// Serialized form of a duration.
pub(crate) fn seconds(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64())
}

/// Fields are `None` if the failure does not have them.
#[derive(Serialize, Default)]
struct FailureShape<'a> {
    kind: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    other: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ago_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ahead_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    counts_in_seconds: Option<f64>,
}

/// Serializes the failure as an object with the fields `kind`, `message` (the `Display` text), and others that depend
/// on the kind, such as `counts_in_seconds`.
impl Serialize for NodeFailure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut shape = FailureShape { message: self.to_string(), ..FailureShape::default() };
        let mut past = None;
        shape.kind = match self {
            Self::Timeout(after) => {
                shape.after_seconds = seconds(Some(*after));
                "timeout"
            }
            Self::Connecting(after) => {
                shape.after_seconds = seconds(Some(*after));
                "connecting"
            }
            Self::Queued(after) => {
                shape.after_seconds = seconds(Some(*after));
                "queued"
            }
            Self::Stalled(silence) => {
                shape.after_seconds = seconds(Some(*silence));
                "stalled"
            }
            Self::Unreachable(_) => "unreachable",
            Self::Disconnected(_) => "disconnected",
            Self::Refused { code, detail } => {
                (shape.code, shape.detail) = (Some(&**code), Some(&**detail));
                "refused"
            }
            Self::Replica => "replica",
            Self::SameServer(other) => {
                shape.other = Some(other);
                "same_server"
            }
            Self::Restarted { ago, .. } => {
                past = Some(*ago);
                "restarted"
            }
            Self::MaybeRestarted { ago, .. } => {
                past = Some(*ago);
                "maybe_restarted"
            }
            Self::Flushed { ago, .. } => {
                past = Some(*ago);
                "flushed"
            }
            Self::Suspect { ahead, .. } => {
                shape.ahead_seconds = seconds(Some(*ahead));
                "suspect"
            }
            Self::Unexpected(_) => "unexpected",
            Self::ShutDown => "shut_down",
        };
        shape.ago_seconds = seconds(past);
        shape.counts_in_seconds = seconds(self.counts_in());
        shape.serialize(serializer)
    }
}

/// Serializes the persistence as a string, such as `append_only_always`.
impl Serialize for Persistence {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::Nothing => "nothing",
            Self::Snapshots => "snapshots",
            Self::AppendOnly(None) => "append_only",
            Self::AppendOnly(Some(Fsync::Always)) => "append_only_always",
            Self::AppendOnly(Some(Fsync::EverySecond)) => "append_only_every_second",
            Self::AppendOnly(Some(Fsync::Never)) => "append_only_never",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Role;
    use serde_json::{json, to_value};

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn failures_have_kind_message_and_fields() {
        for (failure, expected) in [
            (
                NodeFailure::Timeout(ms(50)),
                json!({"kind": "timeout", "message": "timeout 50ms", "after_seconds": 0.05}),
            ),
            (
                NodeFailure::Connecting(ms(50)),
                json!({"kind": "connecting", "message": "connecting for 50ms", "after_seconds": 0.05}),
            ),
            (
                NodeFailure::Queued(ms(50)),
                json!({"kind": "queued", "message": "queued in this client for 50ms", "after_seconds": 0.05}),
            ),
            (
                NodeFailure::Stalled(ms(1_500)),
                json!({"kind": "stalled", "message": "stalled for 1.5s", "after_seconds": 1.5}),
            ),
            (
                NodeFailure::Unreachable("connection refused".into()),
                json!({"kind": "unreachable", "message": "connection refused"}),
            ),
            (
                NodeFailure::Disconnected("broken pipe".into()),
                json!({"kind": "disconnected", "message": "disconnected: broken pipe"}),
            ),
            (
                NodeFailure::Refused { code: "OOM".into(), detail: "too much".into() },
                json!({"kind": "refused", "message": "OOM too much", "code": "OOM", "detail": "too much"}),
            ),
            (
                NodeFailure::Replica,
                json!({"kind": "replica", "message": "replica: configure the address of a master"}),
            ),
            (
                NodeFailure::SameServer("b:6379".into()),
                json!({"kind": "same_server", "message": "same server as b:6379", "other": "b:6379"}),
            ),
            (
                NodeFailure::Unexpected("+odd".into()),
                json!({"kind": "unexpected", "message": "unexpected reply: +odd"}),
            ),
            (
                NodeFailure::ShutDown,
                json!({"kind": "shut_down", "message": "the runtime has shut down"}),
            ),
        ] {
            assert_eq!(to_value(&failure).expect("serializable"), expected);
        }
    }

    #[test]
    fn temporary_failures_have_times() {
        let (ago, counts_in) = (ms(3_100), ms(60_100));
        let times = |kind: &str, message: &str| {
            let (ago, counts_in) = (3.1, 60.1);
            json!({"kind": kind, "message": message, "ago_seconds": ago, "counts_in_seconds": counts_in})
        };
        for (failure, expected) in [
            (
                NodeFailure::Restarted { ago, counts_in },
                times("restarted", "restarted 3.1s ago, counts again in 60.1s"),
            ),
            (
                NodeFailure::MaybeRestarted { ago, counts_in, missing: "INFO is not permitted" },
                times(
                    "maybe_restarted",
                    "maybe restarted (INFO is not permitted): connected 3.1s ago, counts again in 60.1s",
                ),
            ),
            (
                NodeFailure::Flushed { ago, counts_in },
                times("flushed", "flushed 3.1s ago, counts again in 60.1s"),
            ),
            (
                NodeFailure::Suspect { ahead: ms(2_000), counts_in },
                json!({
                    "kind": "suspect",
                    "message": "suspect: its clock is 2.0s ahead, counts again in 60.1s",
                    "ahead_seconds": 2.0,
                    "counts_in_seconds": 60.1
                }),
            ),
        ] {
            assert_eq!(to_value(&failure).expect("serializable"), expected);
        }
    }

    #[test]
    fn facts_are_strings() {
        let persistence = [
            Persistence::Nothing,
            Persistence::Snapshots,
            Persistence::AppendOnly(None),
            Persistence::AppendOnly(Some(Fsync::Always)),
            Persistence::AppendOnly(Some(Fsync::EverySecond)),
            Persistence::AppendOnly(Some(Fsync::Never)),
        ];
        let words = json!([
            "nothing",
            "snapshots",
            "append_only",
            "append_only_always",
            "append_only_every_second",
            "append_only_never"
        ]);
        assert_eq!(to_value(persistence).expect("serializable"), words);
        let fsync = [Fsync::Always, Fsync::EverySecond, Fsync::Never];
        let words = json!(["always", "every_second", "never"]);
        assert_eq!(to_value(fsync).expect("serializable"), words);
        let roles = to_value([Role::Master, Role::Replica]);
        assert_eq!(roles.expect("serializable"), json!(["master", "replica"]));
    }
}
