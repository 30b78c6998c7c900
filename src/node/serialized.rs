//! How states of nodes are serialized (feature `serde`); see [`wire`](crate::wire).

use super::eligibility::VoteEligibility;
use super::shared::NodeState;
use crate::wire::{NodeFailure, seconds};
use serde::{Serialize, Serializer};

#[derive(Serialize)]
struct StateShape<'a> {
    state: &'static str,
    failure: Option<&'a NodeFailure>,
}

#[derive(Serialize)]
struct EligibilityShape<'a> {
    kind: &'static str,
    message: String,
    counts_in_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lag_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    up_for_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<&'a NodeFailure>,
}

/// An object: `state`, which is `connecting`, `up`, `stalled` or `down`, and the `failure`.
impl Serialize for NodeState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (state, failure) = match self {
            Self::Connecting => ("connecting", None),
            Self::Up => ("up", None),
            Self::Stalled => ("stalled", None),
            Self::Down(failure) => ("down", Some(failure)),
        };
        StateShape { state, failure }.serialize(serializer)
    }
}

/// An object: its `kind`, the `message` that it prints as, `counts_in_seconds` (null while the node is unavailable), and the
/// fields of its kind.
impl Serialize for VoteEligibility {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (mut lag, mut up_for_so_long, mut why) = (None, None, None);
        let kind = match self {
            Self::Counted => "counted",
            Self::Unavailable => "unavailable",
            Self::Deferred { lag: later } => {
                lag = Some(*later);
                "deferred"
            }
            Self::RecentStart { up_for, .. } => {
                up_for_so_long = Some(*up_for);
                "recent_start"
            }
            Self::Excluded(failure) => {
                why = Some(failure);
                "excluded"
            }
        };
        let is_known = !matches!(self, Self::Unavailable);
        let shape = EligibilityShape {
            kind,
            message: self.to_string(),
            counts_in_seconds: seconds(is_known.then(|| self.counts_in())),
            lag_seconds: seconds(lag),
            up_for_seconds: seconds(up_for_so_long),
            failure: why,
        };
        shape.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{json, to_value};
    use std::time::Duration;

    #[test]
    fn states_and_eligibility_are_told_with_their_reasons() {
        let failure = NodeFailure::Unreachable("connection refused".into());
        let reason = json!({"kind": "unreachable", "message": "connection refused"});
        let none: Option<()> = None;
        for (state, expected) in [
            (NodeState::Connecting, json!({"state": "connecting", "failure": none})),
            (NodeState::Up, json!({"state": "up", "failure": none})),
            (NodeState::Stalled, json!({"state": "stalled", "failure": none})),
            (NodeState::Down(failure), json!({"state": "down", "failure": reason})),
        ] {
            assert_eq!(to_value(&state).expect("it can be written"), expected);
        }
        let seconds = Duration::from_secs;
        let restarted = NodeFailure::Restarted { ago: seconds(3), counts_in: seconds(57) };
        let message = restarted.to_string();
        let reason = to_value(&restarted).expect("it can be written");
        for (eligibility, expected) in [
            (
                VoteEligibility::Counted,
                json!({"kind": "counted", "message": "counted", "counts_in_seconds": 0.0}),
            ),
            (
                VoteEligibility::Unavailable,
                json!({"kind": "unavailable", "message": "not available", "counts_in_seconds": null}),
            ),
            (
                VoteEligibility::Deferred { lag: seconds(2) },
                json!({
                    "kind": "deferred",
                    "message": "grants delayed by 2.0s: its clock has stepped forward",
                    "counts_in_seconds": 0.0,
                    "lag_seconds": 2.0
                }),
            ),
            (
                VoteEligibility::RecentStart { up_for: seconds(4), counts_in: seconds(50) },
                json!({
                    "kind": "recent_start",
                    "message": "started recently: up for 4.0s, counts in 50.0s",
                    "counts_in_seconds": 50.0,
                    "up_for_seconds": 4.0
                }),
            ),
            (
                VoteEligibility::Excluded(restarted),
                json!({
                    "kind": "excluded",
                    "message": message,
                    "counts_in_seconds": 57.0,
                    "failure": reason
                }),
            ),
        ] {
            assert_eq!(to_value(&eligibility).expect("it can be written"), expected);
        }
    }
}
