//! Serialization of a lock's status and a client's nodes (feature `serde`); see [`wire`](crate::wire).

use super::node_info::NodeInfo;
use super::status::{LockState, NodeStatus, Status};
use crate::node::{NodeState, VoteEligibility};
use crate::observe::Holder;
use crate::wire::{NodeFailure, seconds};
use serde::{Serialize, Serializer};

#[derive(Serialize)]
struct StatusShape<'a> {
    is_held: bool,
    needed: usize,
    holder: Option<Holder>,
    acquirable_in_seconds: Option<f64>,
    nodes: &'a [NodeStatus],
}

#[derive(Serialize)]
struct NodeShape<'a> {
    name: &'a str,
    #[serde(flatten)]
    state: &'a LockState,
    eligibility: &'a VoteEligibility,
    latency_seconds: Option<f64>,
}

#[derive(Serialize, Default)]
struct LockShape<'a> {
    state: &'static str,
    holder: Option<&'a Holder>,
    ttl_seconds: Option<f64>,
    failure: Option<&'a NodeFailure>,
}

#[derive(Serialize)]
struct InfoShape<'a> {
    name: &'a str,
    #[serde(flatten)]
    state: &'a NodeState,
    eligibility: &'a VoteEligibility,
    version: Option<&'a str>,
    evicting: Option<&'a str>,
}

/// Serializes as an object with the fields `is_held`, `needed`, `holder`, `acquirable_in_seconds` and `nodes`. The
/// nodes are in the order in which they were passed to the builder.
impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let holder = self.holder();
        let (is_held, needed) = (holder.is_some(), self.needed());
        let acquirable_in_seconds = seconds(self.acquirable_in());
        let nodes = self.nodes();
        StatusShape { is_held, needed, holder, acquirable_in_seconds, nodes }.serialize(serializer)
    }
}

/// Serializes as an object with the fields `name`, `eligibility` and `latency_seconds`, and the fields of
/// [`LockState`].
impl Serialize for NodeStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (name, state, latency_seconds) = (self.name(), self.state(), seconds(self.latency()));
        let eligibility = self.eligibility();
        NodeShape { name, state, eligibility, latency_seconds }.serialize(serializer)
    }
}

/// Serializes as an object with the fields `state` (`free`, `held`, `foreign` or `failed`), `holder`, `ttl_seconds`
/// (the key's remaining ttl) and `failure`.
impl Serialize for LockState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut shape = LockShape::default();
        shape.state = match self {
            Self::Free => "free",
            Self::Held(holder) => {
                (shape.holder, shape.ttl_seconds) = (Some(holder), seconds(holder.ttl()));
                "held"
            }
            Self::Foreign { ttl } => {
                shape.ttl_seconds = seconds(*ttl);
                "foreign"
            }
            Self::Failed(failure) => {
                shape.failure = Some(failure);
                "failed"
            }
        };
        shape.serialize(serializer)
    }
}

/// Serializes as an object with the fields `name`, `eligibility`, `version` and `evicting`, and with `state` and
/// `failure` as in [`NodeState`].
impl Serialize for NodeInfo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shape = InfoShape {
            name: self.name(),
            state: self.state(),
            eligibility: self.eligibility(),
            version: self.version(),
            evicting: self.evicting(),
        };
        shape.serialize(serializer)
    }
}
