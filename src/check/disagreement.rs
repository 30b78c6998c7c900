//! Settings on which clients of the same nodes disagree.

use crate::wire::short;
use std::fmt;
use std::time::Duration;

/// Maximum number of clients in a message.
const MOST_SHOWN: usize = 3;

/// A setting in which other clients differ from the client that ran the check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disagreement {
    /// Other nodes. Only a difference of one node is harmless, while a change of the nodes is rolled out.
    Nodes {
        /// Number of nodes of the other clients.
        theirs: usize,
        /// Number of this client's nodes on which the other clients are connected, or whose clients are unknown.
        shared: usize,
        /// True if a quorum of the other client and a quorum of this client need not overlap: both can hold the same lock.
        splits: bool,
    },
    /// The same nodes by other addresses.
    Names,
    /// Another `max_ttl`.
    MaxTtl {
        /// `max_ttl` of the other clients.
        theirs: Duration,
        /// `max_ttl` of this client.
        ours: Duration,
    },
    /// Another key prefix: their locks are independent of this client's.
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

/// The sentence without its subject, `the clients …`.
impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes { theirs, shared, splits } => {
                write!(f, "use {theirs} nodes, {shared} of them shared with this client: ")?;
                f.write_str(if *splits {
                    "both can hold the same lock; configure the same nodes on all clients"
                } else {
                    "configure the same nodes on all clients, and change one node at a time"
                })
            }
            Self::Names => f.write_str(
                "use other addresses for the same nodes: use the same addresses, so that differences can be detected",
            ),
            Self::MaxTtl { theirs, ours } => {
                let (theirs, ours) = (short(*theirs), short(*ours));
                write!(f, "use max_ttl {theirs} instead of {ours}: with the shorter one, the ")?;
                write!(f, "restart guard counts a restarted node before all locks that it forgot ")?;
                write!(f, "have expired; configure the same max_ttl on all clients")
            }
            Self::KeyPrefix => f.write_str("use another key_prefix: their locks are independent of this client's"),
        }
    }
}
