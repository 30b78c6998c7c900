//! What each node said in a round.

use super::holder::Holder;
use crate::wire::{NodeFailure, short};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What each node said in a round: the reason for a lease, or for a refusal.
///
/// Prints on one line, for example
/// `2/5 granted (need 3): a:6379 granted 1.2ms, b:6379 granted 0.9ms, c:6379 held 1.0ms, d:6379
/// timeout 50ms, e:6379 connection refused`. It names no values, no users and no passwords.
#[derive(Clone, PartialEq, Eq)]
pub struct Report {
    needed: usize,
    nodes: Box<[NodeReport]>,
    retry_after: Option<Duration>,
}

/// One node's part of a [`Report`].
#[derive(Clone, PartialEq, Eq)]
pub struct NodeReport {
    name: Arc<str>,
    vote: NodeVote,
    latency: Option<Duration>,
    holder: Option<Holder>,
}

/// What a node said.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeVote {
    /// It did what it was asked.
    Granted,
    /// Another value, or something that is no lock of ours, is at the key.
    Held,
    /// There is no such key (extend and release only).
    Missing,
    /// It gave no answer that counts, for this reason.
    Failed(NodeFailure),
    /// It had not answered when the round was decided without it.
    Pending,
}

impl Report {
    pub(crate) fn new(needed: usize, nodes: Box<[NodeReport]>) -> Self {
        Self { needed, nodes, retry_after: None }
    }

    /// The same, with when it is worth while to try again.
    pub(crate) fn with_retry_after(self, retry_after: Option<Duration>) -> Self {
        Self { retry_after, ..self }
    }

    /// The same, of locks that have at most this ttl.
    pub(crate) fn with_max_ttl(mut self, max_ttl: Duration) -> Self {
        for node in &mut self.nodes {
            node.holder = node.holder.take().map(|holder| holder.with_max_ttl(max_ttl));
        }
        self
    }

    /// When a quorum can be free at the earliest, from when this report was made, if those who hold the
    /// lock keep it to its end; see [`AcquireError::retry_after`](crate::AcquireError::retry_after).
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The nodes, in the order they were given to the builder.
    pub fn nodes(&self) -> &[NodeReport] {
        &self.nodes
    }

    /// How many nodes granted, late answers included.
    pub fn granted(&self) -> usize {
        self.nodes.iter().filter(|node| node.vote == NodeVote::Granted).count()
    }

    /// How many had to: the quorum.
    pub fn needed(&self) -> usize {
        self.needed
    }
}

impl NodeReport {
    pub(crate) fn new(name: Arc<str>, vote: NodeVote, latency: Option<Duration>) -> Self {
        Self { name, vote, latency, holder: None }
    }

    /// The same, with who holds the lock there.
    pub(crate) fn with_holder(self, holder: Option<Holder>) -> Self {
        Self { holder, ..self }
    }

    /// Who holds the lock there, if that was asked: by an [`acquire`](crate::Redlock::acquire) that
    /// has no attempt left, or was refused before. [`status`](crate::Redlock::status) asks for nothing
    /// else.
    pub fn holder(&self) -> Option<&Holder> {
        self.holder.as_ref()
    }

    /// The node's address, without user and password.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it said.
    pub fn vote(&self) -> &NodeVote {
        &self.vote
    }

    /// From just before the round's first send to this node's answer; `None` without an answer.
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
            NodeVote::Missing => "missing",
            NodeVote::Pending => "pending",
            NodeVote::Failed(failure) => return write!(f, "{} {failure}", self.name),
        };
        write!(f, "{} {word}", self.name)?;
        if let Some(told) = self.holder.as_ref().and_then(Holder::metadata) {
            // It is the holder's text, and may end up in a log.
            write!(f, " by {}", told.escape_debug())?;
        }
        if let Some(excess) = self.holder.as_ref().and_then(Holder::excess) {
            let ttl = self.holder.as_ref().and_then(Holder::ttl).unwrap_or_default();
            write!(f, " for {}, {excess};", short(ttl))?;
        }
        self.latency.map_or(Ok(()), |latency| write!(f, " {}", short(latency)))
    }
}

/// The same line: an error in a log is to be read.
impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The same line: an error in a log is to be read.
impl fmt::Debug for NodeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_one_line_that_tells_all() {
        let ms = |us| Some(Duration::from_micros(us));
        let timeout = NodeFailure::Timeout(Duration::from_millis(50));
        let refused = NodeFailure::Unreachable("connection refused".into());
        let report = Report::new(
            3,
            Box::new([
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
