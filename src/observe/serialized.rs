//! Serialization of reports (feature `serde`); see [`wire`](crate::wire) for the conventions.

use super::holder::Holder;
use super::report::{NodeReport, NodeVote, Report};
use crate::wire::{NodeFailure, seconds};
use serde::{Serialize, Serializer};

#[derive(Serialize)]
struct ReportShape<'a> {
    granted: usize,
    needed: usize,
    retry_after_seconds: Option<f64>,
    nodes: &'a [NodeReport],
}

#[derive(Serialize)]
struct NodeShape<'a> {
    name: &'a str,
    #[serde(flatten)]
    vote: &'a NodeVote,
    latency_seconds: Option<f64>,
    holder: Option<&'a Holder>,
}

#[derive(Serialize)]
struct VoteShape<'a> {
    vote: &'static str,
    failure: Option<&'a NodeFailure>,
}

#[derive(Serialize)]
struct HolderShape<'a> {
    hint: String,
    metadata: Option<&'a str>,
    ttl_seconds: Option<f64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cooling_down: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    exceeds_max_ttl: bool,
}

/// Serializes the report as an object with the fields `granted`, `needed`, `retry_after_seconds` and `nodes`. The nodes
/// are in the order in which they were given to the builder.
impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shape = ReportShape {
            granted: self.granted(),
            needed: self.needed(),
            retry_after_seconds: seconds(self.retry_after()),
            nodes: self.nodes(),
        };
        shape.serialize(serializer)
    }
}

/// Serializes the reply as an object with the fields `name`, `vote`, `failure`, `latency_seconds` and `holder`.
/// [`NodeVote`] provides the fields `vote` and `failure`.
impl Serialize for NodeReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shape = NodeShape {
            name: self.name(),
            vote: self.vote(),
            latency_seconds: seconds(self.latency()),
            holder: self.holder(),
        };
        shape.serialize(serializer)
    }
}

/// Serializes the vote as an object with the fields `vote` (`granted`, `held`, `missing`, `failed` or `pending`) and
/// `failure`.
impl Serialize for NodeVote {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (vote, failure) = match self {
            Self::Granted => ("granted", None),
            Self::Held => ("held", None),
            Self::Missing => ("missing", None),
            Self::Failed(failure) => ("failed", Some(failure)),
            Self::Pending => ("pending", None),
        };
        VoteShape { vote, failure }.serialize(serializer)
    }
}

/// Serializes the holder as an object with the fields `hint`, `metadata` and `ttl_seconds`. The fields `cooling_down`
/// and `exceeds_max_ttl` are present only if they are true. The object does not contain the lock's value.
impl Serialize for Holder {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (metadata, ttl_seconds) = (self.metadata(), seconds(self.ttl()));
        let (cooling_down, exceeds_max_ttl) = (self.is_cooling_down(), self.exceeds_max_ttl());
        let hint = self.hint();
        HolderShape { hint, metadata, ttl_seconds, cooling_down, exceeds_max_ttl }
            .serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Value;
    use serde_json::{json, to_value};
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn report_serialization() {
        let ms = Duration::from_millis;
        let value = "0123456789abcdef0123456789abcdef:worker-7";
        let holder = Holder::new(Value::of(value.as_bytes()), Some(ms(9_500)));
        let hint = holder.hint();
        let timeout = NodeFailure::Timeout(ms(50));
        let node = |name: &str, vote, latency| NodeReport::new(name.into(), vote, latency);
        let report = Report::new(
            3,
            Arc::new([
                node("a", NodeVote::Granted, Some(ms(2))),
                node("b", NodeVote::Held, None).with_holder(Some(holder)),
                node("c", NodeVote::Missing, None),
                node("d", NodeVote::Failed(timeout), None),
                node("e", NodeVote::Pending, None),
            ]),
        );
        let alone = |name, vote, latency: Option<f64>| {
            let failure: Option<()> = None;
            json!({
                "name": name, "vote": vote, "failure": failure, "latency_seconds": latency,
                "holder": failure
            })
        };
        let mut held = alone("b", "held", None);
        held["holder"] = json!({"hint": hint, "metadata": "worker-7", "ttl_seconds": 9.5});
        let mut failed = alone("d", "failed", None);
        failed["failure"] =
            json!({"kind": "timeout", "message": "timeout 50ms", "after_seconds": 0.05});
        let nodes = json!([
            alone("a", "granted", Some(0.002)),
            held,
            alone("c", "missing", None),
            failed,
            alone("e", "pending", None)
        ]);
        let expected =
            json!({"granted": 1, "needed": 3, "retry_after_seconds": 0.25, "nodes": nodes});
        let report = report.with_retry_after(Some(ms(250)));
        let written = to_value(&report).expect("serializable");
        assert_eq!(written, expected);
        assert!(!written.to_string().contains(&value[..32]), "{written}");
    }
}
