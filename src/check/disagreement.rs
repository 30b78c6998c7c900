//! Settings on which clients of the same nodes disagree.

use crate::wire::short;
use std::fmt;
use std::time::Duration;

/// Maximum number of clients in a message.
const MOST_SHOWN: usize = 3;

/// Setting in which other clients differ from the client that ran the check; see
/// [`Finding::Disagrees`](crate::Finding::Disagrees).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case"))]
pub enum Disagreement {
    /// The other clients use a different set of nodes. This is harmless only during a rollout that adds, removes or
    /// replaces a single node.
    Nodes {
        /// Number of nodes that the other clients use.
        theirs: usize,
        /// Number of this client's nodes to which the other clients are also connected. A node whose list of clients
        /// could not be read counts as shared.
        shared: usize,
        /// True if a quorum of the other clients and a quorum of this client need not overlap. Both sides can then hold
        /// the same lock.
        splits: bool,
    },
    /// The other clients use the same nodes, but with different addresses. Use the same addresses on all clients, so
    /// that a check can detect whether their nodes differ.
    Names,
    /// The other clients use a different `max_ttl`. Clients with the shorter value count the votes of a restarted node
    /// too early: locks that the node has lost may still be held.
    MaxTtl {
        /// The `max_ttl` of the other clients.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "theirs_seconds", serialize_with = "crate::wire::seconds")
        )]
        theirs: Duration,
        /// The `max_ttl` of this client.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "ours_seconds", serialize_with = "crate::wire::seconds")
        )]
        ours: Duration,
    },
    /// The other clients use a different key prefix, so their locks are independent of this client's locks.
    KeyPrefix,
}

impl Disagreement {
    /// Writes the sentence about `clients`.
    pub(super) fn write(&self, clients: &[String], f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shown, more) = clients.split_at(clients.len().min(MOST_SHOWN));
        write!(f, "the clients {}", shown.join(", "))?;
        if !more.is_empty() {
            write!(f, " and {} more", more.len())?;
        }
        write!(f, " {self}")
    }
}

/// Writes a sentence without its subject. [`Finding`](crate::check::Finding) adds the subject, `the clients …`.
impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes { theirs, shared, splits } => {
                write!(f, "use {theirs} nodes, {shared} of them shared with this client: ")?;
                f.write_str(if *splits {
                    "they and this client can hold the same lock at once; configure the same nodes on all clients"
                } else {
                    "this is safe only while one node is added, removed or replaced; otherwise configure the same \
                     nodes on all clients"
                })
            }
            Self::Names => f.write_str(
                "use different addresses for the same nodes: configure the same addresses on all clients, so that a \
                 check can detect different nodes",
            ),
            Self::MaxTtl { theirs, ours } => {
                let (theirs, ours) = (short(*theirs), short(*ours));
                write!(
                    f,
                    "use max_ttl {theirs}, and this client uses {ours}: with the shorter value, a restarted node \
                     counts again before all lost locks have expired; configure the same max_ttl on all clients"
                )
            }
            Self::KeyPrefix => f.write_str("use a different key_prefix: their locks are independent of this client's"),
        }
    }
}
