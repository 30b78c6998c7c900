//! Replies of the nodes in one round of commands.

use super::holder::Holder;
use crate::wire::{NodeFailure, short};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Replies of the nodes to the round of commands that determined the result of an operation. Cheap to clone.
///
/// The `Display` output is one line, for example `2/5 granted (need 3): a:6379 granted 1.2ms, b:6379 granted 0.9ms,
/// c:6379 held 1.0ms, d:6379 timeout 50ms, e:6379 connection refused`. The line contains no lock values, user names or
/// passwords.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Report {
    needed: usize,
    nodes: Arc<[NodeReport]>,
    #[cfg_attr(
        feature = "serde",
        serde(rename = "retry_after_seconds", serialize_with = "crate::wire::seconds")
    )]
    retry_after: Option<Duration>,
}

/// Reply of one node in a [`Report`].
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct NodeReport {
    name: Arc<str>,
    #[cfg_attr(feature = "serde", serde(flatten))]
    vote: NodeVote,
    #[cfg_attr(
        feature = "serde",
        serde(rename = "latency_seconds", serialize_with = "crate::wire::seconds")
    )]
    latency: Option<Duration>,
    holder: Option<Holder>,
}

/// Vote of one node in a round of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(tag = "vote", content = "detail", rename_all = "snake_case"))]
pub enum NodeVote {
    /// The node granted the request: it set, extended or deleted the key.
    Granted,
    /// The node refused the request because the key has another value or is not a string. In an
    /// [`acquire_any`](crate::Redlock::acquire_any), also: the node granted another resource than the one whose grants were counted.
    Held,
    /// The key does not exist on the node. Only extensions, releases and adoptions can result in this vote.
    Missing,
    /// The node's vote does not count, for the given reason.
    Failed(NodeFailure),
    /// The round was decided before the node replied.
    Pending,
}

impl Report {
    pub(crate) fn new(needed: usize, nodes: Arc<[NodeReport]>) -> Self {
        Self { needed, nodes, retry_after: None }
    }

    pub(crate) fn with_retry_after(self, retry_after: Option<Duration>) -> Self {
        Self { retry_after, ..self }
    }

    pub(crate) fn with_max_ttl(mut self, max_ttl: Duration) -> Self {
        for node in Arc::make_mut(&mut self.nodes) {
            node.holder = node.holder.take().map(|holder| holder.with_max_ttl(max_ttl));
        }
        self
    }

    /// Returns the minimum time until a quorum of nodes can grant the lock, measured from the creation of this report.
    /// The result assumes that the holders neither extend nor release the lock.
    ///
    /// Returns `None` if the holders do not prevent a quorum, if too few nodes reported the TTL of the existing keys,
    /// or if the keys have no expiry. See [`AcquireError::retry_after`](crate::AcquireError::retry_after).
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the time until the grants of enough nodes count for a quorum. Considers only nodes that granted the
    /// request and nodes that are temporarily excluded. Returns `None` if these nodes are too few for a quorum.
    pub(crate) fn counts_in(&self) -> Option<Duration> {
        let waits = self.nodes.iter().filter_map(|node| match &node.vote {
            NodeVote::Granted => Some(Duration::ZERO),
            NodeVote::Failed(failure) => failure.counts_in(),
            NodeVote::Held | NodeVote::Missing | NodeVote::Pending => None,
        });
        let mut waits: Vec<_> = waits.collect();
        waits.sort_unstable();
        waits.get(self.needed.checked_sub(1)?).copied()
    }

    /// Returns the replies of all nodes, in the order in which the nodes were given to the builder.
    pub fn nodes(&self) -> &[NodeReport] {
        &self.nodes
    }

    /// Returns the number of nodes that granted the request, including grants that arrived after the round was decided.
    pub fn granted(&self) -> usize {
        self.nodes.iter().filter(|node| node.vote == NodeVote::Granted).count()
    }

    /// Returns the quorum: the number of grants that the operation needs.
    pub fn needed(&self) -> usize {
        self.needed
    }
}

impl NodeReport {
    pub(crate) fn new(name: Arc<str>, vote: NodeVote, latency: Option<Duration>) -> Self {
        Self { name, vote, latency, holder: None }
    }

    pub(crate) fn with_holder(self, holder: Option<Holder>) -> Self {
        Self { holder, ..self }
    }

    /// Returns the holder of the lock. Returns `None` if the client did not request the holder, or if the node did not
    /// report it.
    ///
    /// An [`acquire`](crate::Redlock::acquire) requests the holder from its second attempt onwards, or in its first
    /// attempt if only one is allowed. An acquire of several resources or with a fencing token requests the holder in
    /// every attempt. To read the holder without an acquire, use [`status`](crate::Redlock::status).
    pub fn holder(&self) -> Option<&Holder> {
        self.holder.as_ref()
    }

    /// Returns the address of the node, without user and password.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the node's vote on the request.
    pub fn vote(&self) -> &NodeVote {
        &self.vote
    }

    /// Returns the node's latency in this round: the time until the client received the node's reply or detected its
    /// failure. The measurement starts just before the client sends the first command of the round. Returns `None` if
    /// the node neither replied nor failed.
    pub fn latency(&self) -> Option<Duration> {
        self.latency
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (granted, all) = (self.granted(), self.nodes.len());
        write!(f, "{granted}/{all} granted (need {}):", self.needed)?;
        for (place, node) in self.nodes.iter().enumerate() {
            write!(f, "{} {node}", if place == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Display for NodeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match &self.vote {
            NodeVote::Granted => "granted",
            NodeVote::Held => "held",
            NodeVote::Missing => "no key",
            NodeVote::Pending => "pending",
            NodeVote::Failed(failure) => return write!(f, "{} {failure}", self.name),
        };
        write!(f, "{} {word}", self.name)?;
        if let Some(told) = self.holder.as_ref().and_then(Holder::metadata) {
            // Another client has chosen this text, so it is escaped for logs.
            write!(f, " by {}", told.escape_debug())?;
        }
        if let Some(excess) = self.holder.as_ref().and_then(Holder::excess) {
            let ttl = self.holder.as_ref().and_then(Holder::ttl).unwrap_or_default();
            write!(f, " (expires in {}, {excess})", short(ttl))?;
        }
        self.latency.map_or(Ok(()), |latency| write!(f, " {}", short(latency)))
    }
}

debug_as_display!(Report, NodeReport);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_displays_as_one_line() {
        let ms = |us| Some(Duration::from_micros(us));
        let timeout = NodeFailure::Timeout(Duration::from_millis(50));
        let refused = NodeFailure::Unreachable("connection refused".into());
        let report = Report::new(
            3,
            Arc::new([
                NodeReport::new("a".into(), NodeVote::Granted, ms(1_200)),
                NodeReport::new("b".into(), NodeVote::Granted, ms(900)),
                NodeReport::new("c".into(), NodeVote::Held, ms(1_000)),
                NodeReport::new("d".into(), NodeVote::Failed(timeout), None),
                NodeReport::new("e".into(), NodeVote::Failed(refused), ms(10)),
            ]),
        );
        let line = "2/5 granted (need 3): a granted 1.2ms, b granted 0.9ms, c held 1.0ms, \
                    d timeout 50ms, e connection refused";
        assert_eq!(report.to_string(), line);
    }
}
