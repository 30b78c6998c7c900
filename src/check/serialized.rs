//! Serialization of checks (feature `serde`); see [`wire`](crate::wire) for the conventions.

use super::NodeCheck;
use super::disagreement::Disagreement;
use super::finding::{Finding, Severity};
use super::offset::ClockOffset;
use crate::wire::{NodeFailure, Persistence, Role, seconds};
use serde::{Serialize, Serializer};

#[derive(Serialize)]
struct CheckShape<'a> {
    name: &'a str,
    version: Option<&'a str>,
    role: Option<Role>,
    uptime_seconds: Option<f64>,
    persistence: Option<Persistence>,
    maxmemory_bytes: Option<u64>,
    eviction_policy: Option<&'a str>,
    clock_offset: Option<ClockOffset>,
    latency_seconds: Option<f64>,
    worst: Option<Severity>,
    findings: &'a [Finding],
}

#[derive(Serialize)]
struct OffsetShape {
    offset_seconds: f64,
    uncertainty_seconds: f64,
}

/// Fields are absent if the finding does not have them.
#[derive(Serialize)]
struct FindingShape<'a> {
    kind: &'static str,
    severity: Severity,
    message: String,
    #[serde(flatten)]
    fields: Fields<'a>,
}

/// Fields of a finding.
#[derive(Serialize)]
#[serde(untagged)]
enum Fields<'a> {
    Nothing {},
    Failure { failure: &'a NodeFailure },
    Quarantined { failure: &'a NodeFailure, counts_in_seconds: f64 },
    Other { other: &'a str },
    Refused { command: &'a str, failure: &'a NodeFailure },
    Evicting { policy: &'a str, evicted: u64 },
    Moved { by_seconds: f64 },
    Off { offset: ClockOffset },
    Disputed { by_seconds: f64, near_client: &'a [String], others: &'a [String] },
    Excess { key: &'a str, ttl_seconds: f64, max_ttl_seconds: f64 },
    Kept { persistence: Persistence },
    Version { version: String },
    Count { count: u64 },
    Sentinels { sentinels: u64 },
    Disagrees { clients: &'a [String], about: &'a Disagreement },
    Unknown { what: &'a str, needs: &'a str },
}

/// An object with the values of the getters, `worst` and `findings`.
impl Serialize for NodeCheck {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shape = CheckShape {
            name: self.name(),
            version: self.version(),
            role: self.role(),
            uptime_seconds: seconds(self.uptime()),
            persistence: self.persistence(),
            maxmemory_bytes: self.maxmemory(),
            eviction_policy: self.eviction_policy(),
            clock_offset: self.clock_offset(),
            latency_seconds: seconds(self.latency()),
            worst: self.worst(),
            findings: self.findings(),
        };
        shape.serialize(serializer)
    }
}

/// An object: `offset_seconds` (positive if the clock is ahead) and `uncertainty_seconds`.
impl Serialize for ClockOffset {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let distance = self.distance().as_secs_f64();
        let offset_seconds = if self.is_ahead() { distance } else { -distance };
        let uncertainty_seconds = self.uncertainty().as_secs_f64();
        OffsetShape { offset_seconds, uncertainty_seconds }.serialize(serializer)
    }
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum DisagreementShape {
    Nodes { theirs: usize, shared: usize, splits: bool },
    Names,
    MaxTtl { theirs_seconds: f64, ours_seconds: f64 },
    KeyPrefix,
}

/// An object: `kind` and the fields of that kind.
impl Serialize for Disagreement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shape = match self {
            Self::Nodes { theirs, shared, splits } => {
                DisagreementShape::Nodes { theirs: *theirs, shared: *shared, splits: *splits }
            }
            Self::Names => DisagreementShape::Names,
            Self::MaxTtl { theirs, ours } => DisagreementShape::MaxTtl {
                theirs_seconds: theirs.as_secs_f64(),
                ours_seconds: ours.as_secs_f64(),
            },
            Self::KeyPrefix => DisagreementShape::KeyPrefix,
        };
        shape.serialize(serializer)
    }
}

/// An object: `kind`, `severity`, the displayed text as `message`, and the fields of that kind.
impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (kind, fields) = match self {
            Self::Unreachable { failure } => ("unreachable", Fields::Failure { failure }),
            Self::Quarantined { failure, counts_in } => {
                let counts_in_seconds = counts_in.as_secs_f64();
                ("quarantined", Fields::Quarantined { failure, counts_in_seconds })
            }
            Self::Replica => ("replica", Fields::Nothing {}),
            Self::SameServer { other } => ("same_server", Fields::Other { other }),
            Self::Refused { command, failure } => ("refused", Fields::Refused { command, failure }),
            Self::Evicting { policy, evicted } => {
                ("evicting", Fields::Evicting { policy, evicted: *evicted })
            }
            Self::ClockMoved { by } => {
                ("clock_moved", Fields::Moved { by_seconds: by.as_secs_f64() })
            }
            Self::ClockOff { offset } => ("clock_off", Fields::Off { offset: *offset }),
            Self::ClocksDisagree { by, near_client, others } => {
                let by_seconds = by.as_secs_f64();
                ("clocks_disagree", Fields::Disputed { by_seconds, near_client, others })
            }
            Self::ExceedsMaxTtl { key, ttl, max_ttl } => {
                let (ttl_seconds, max_ttl_seconds) = (ttl.as_secs_f64(), max_ttl.as_secs_f64());
                ("exceeds_max_ttl", Fields::Excess { key, ttl_seconds, max_ttl_seconds })
            }
            Self::NotDurable { persistence } => {
                ("not_durable", Fields::Kept { persistence: *persistence })
            }
            Self::ClockUnreadable => ("clock_unreadable", Fields::Nothing {}),
            Self::NoFsyncOnRewrite => ("no_fsync_on_rewrite", Fields::Nothing {}),
            Self::Old { version: (major, minor) } => {
                ("old", Fields::Version { version: format!("{major}.{minor}") })
            }
            Self::NoPushes { failure } => ("no_pushes", Fields::Failure { failure }),
            Self::HasReplicas { count } => ("has_replicas", Fields::Count { count: *count }),
            Self::Watched { sentinels } => ("watched", Fields::Sentinels { sentinels: *sentinels }),
            Self::Disagrees { clients, about } => {
                ("disagrees", Fields::Disagrees { clients, about })
            }
            Self::Clustered => ("clustered", Fields::Nothing {}),
            Self::Unknown { what, needs } => ("unknown", Fields::Unknown { what, needs }),
        };
        let (severity, message) = (self.severity(), self.to_string());
        FindingShape { kind, severity, message, fields }.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::super::offset::offsets;
    use super::*;
    use crate::node::WallClock;
    use crate::protocol::Offset;
    use serde_json::{json, to_value};
    use std::time::Duration;

    /// Offset of the first of two nodes, `ahead` milliseconds ahead of the other.
    fn offset(ahead: i64) -> ClockOffset {
        let at = |nanos: i64| {
            let offset = Offset { lowest: nanos, highest: nanos };
            Some(WallClock { offset, moved: Duration::ZERO })
        };
        offsets(&[at(ahead * 1_000_000), at(0)])[0].expect("both were read")
    }

    #[test]
    fn offset_is_signed() {
        for (ahead, seconds) in [(1_500, 1.5), (-1_500, -1.5)] {
            let written = to_value(offset(ahead)).expect("serializable");
            assert_eq!(written["offset_seconds"], json!(seconds));
            assert!(written["uncertainty_seconds"].as_f64().is_some_and(|unsure| unsure < 0.001));
        }
    }

    fn is_written(finding: &Finding, kind: &str, severity: &str, held: serde_json::Value) {
        let mut expected = held;
        expected["kind"] = json!(kind);
        expected["severity"] = json!(severity);
        expected["message"] = json!(finding.to_string());
        assert_eq!(to_value(finding).expect("serializable"), expected);
    }

    #[test]
    fn dangers_have_kind_message_and_fields() {
        let why = to_value(NodeFailure::Replica).expect("serializable");
        let failure = || NodeFailure::Replica;
        let (other, policy) = ("b".to_owned(), "allkeys-lru".to_owned());
        let counts_in = Duration::from_millis(2_500);
        for (finding, kind, held) in [
            (Finding::Unreachable { failure: failure() }, "unreachable", json!({"failure": why})),
            (Finding::Replica, "replica", json!({})),
            (Finding::SameServer { other }, "same_server", json!({"other": "b"})),
            (
                Finding::Quarantined { failure: failure(), counts_in },
                "quarantined",
                json!({"failure": why, "counts_in_seconds": 2.5}),
            ),
            (
                Finding::Refused { command: "SET", failure: failure() },
                "refused",
                json!({"command": "SET", "failure": why}),
            ),
            (
                Finding::Evicting { policy, evicted: 7 },
                "evicting",
                json!({"policy": "allkeys-lru", "evicted": 7}),
            ),
            (
                Finding::ClockMoved { by: Duration::from_millis(1_500) },
                "clock_moved",
                json!({"by_seconds": 1.5}),
            ),
        ] {
            is_written(&finding, kind, "danger", held);
        }
    }

    #[test]
    fn exceeds_max_ttl_has_key_and_ttls() {
        let [ttl, max_ttl] = [3_600, 60].map(Duration::from_secs);
        let finding = Finding::ExceedsMaxTtl { key: "deploy".to_owned(), ttl, max_ttl };
        let held = json!({"key": "deploy", "ttl_seconds": 3600.0, "max_ttl_seconds": 60.0});
        is_written(&finding, "exceeds_max_ttl", "warning", held);
    }

    #[test]
    fn disagreements_are_nested_objects() {
        let theirs = Duration::from_millis(1_500);
        let max_ttl = Disagreement::MaxTtl { theirs, ours: Duration::from_secs(60) };
        let nodes = |splits| Disagreement::Nodes { theirs: 3, shared: 2, splits };
        for (about, severity, written) in [
            (
                nodes(true),
                "danger",
                json!({"kind": "nodes", "theirs": 3, "shared": 2, "splits": true}),
            ),
            (
                nodes(false),
                "warning",
                json!({"kind": "nodes", "theirs": 3, "shared": 2, "splits": false}),
            ),
            (
                max_ttl,
                "warning",
                json!({"kind": "max_ttl", "theirs_seconds": 1.5, "ours_seconds": 60.0}),
            ),
            (Disagreement::Names, "note", json!({"kind": "names"})),
            (Disagreement::KeyPrefix, "note", json!({"kind": "key_prefix"})),
        ] {
            let finding = Finding::Disagrees { clients: vec!["a:1".to_owned()], about };
            let held = json!({"clients": ["a:1"], "about": written});
            is_written(&finding, "disagrees", severity, held);
        }
    }

    #[test]
    fn warnings_and_notes_have_kind_message_and_fields() {
        let offset = offset(1_500);
        let off = to_value(offset).expect("serializable");
        let why = to_value(NodeFailure::Replica).expect("serializable");
        let persistence = Persistence::Snapshots;
        for (finding, kind, held) in [
            (Finding::ClockOff { offset }, "clock_off", json!({"offset": off})),
            (
                Finding::ClocksDisagree {
                    by: Duration::from_millis(1_500),
                    near_client: vec!["a:1".into()],
                    others: vec!["b:1".into(), "c:1".into()],
                },
                "clocks_disagree",
                json!({"by_seconds": 1.5, "near_client": ["a:1"], "others": ["b:1", "c:1"]}),
            ),
            (
                Finding::NotDurable { persistence },
                "not_durable",
                json!({"persistence": "snapshots"}),
            ),
            (Finding::NoFsyncOnRewrite, "no_fsync_on_rewrite", json!({})),
            (Finding::Old { version: (6, 0) }, "old", json!({"version": "6.0"})),
            (Finding::HasReplicas { count: 2 }, "has_replicas", json!({"count": 2})),
            (Finding::Watched { sentinels: 3 }, "watched", json!({"sentinels": 3})),
        ] {
            is_written(&finding, kind, "warning", held);
        }
        for (finding, kind, held) in [
            (
                Finding::NoPushes { failure: NodeFailure::Replica },
                "no_pushes",
                json!({"failure": why}),
            ),
            (Finding::Clustered, "clustered", json!({})),
            (
                Finding::Unknown { what: "role", needs: "+info" },
                "unknown",
                json!({"what": "role", "needs": "+info"}),
            ),
        ] {
            is_written(&finding, kind, "note", held);
        }
    }
}
