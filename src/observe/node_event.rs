//! Events of nodes, as seen by one client.

use crate::wire::NodeFailure;
use std::fmt;
use std::time::Duration;

/// The standing of a node has changed. One event per change, by the first connection of the client that detects it. A
/// connection that breaks and is re-established at once is not a change.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NodeChanged<'a> {
    /// Address of the node, without user and password.
    pub node: &'a str,
    /// Standing before the change.
    pub from: NodeStanding,
    /// Standing after the change.
    pub to: NodeStanding,
    /// Reason, with its duration if known; `None` if the node counts.
    pub reason: Option<&'a NodeFailure>,
    /// Duration of the standing before the change.
    pub after: Duration,
    /// Number of nodes that count now.
    pub counted: usize,
    /// Number of nodes.
    pub nodes: usize,
    /// The quorum.
    pub needed: usize,
}

/// Standing of a node with a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NodeStanding {
    /// Not connected yet.
    #[default]
    Unknown,
    /// Connected and responsive; its grants count.
    Counted,
    /// Unresponsive: a command has had no reply for longer than the node timeout.
    Stalled,
    /// Not connected.
    Down,
    /// Connected, but possibly without earlier locks after a restart or a flush. Its grants do not count for a while;
    /// see [`RestartGuard`](crate::RestartGuard).
    Quarantined,
    /// Connected, but with a suspect clock; see [`NodeFailure::Suspect`].
    Suspect,
}

impl NodeStanding {
    /// Name in snake case, used as a metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Counted => "counted",
            Self::Stalled => "stalled",
            Self::Down => "down",
            Self::Quarantined => "quarantined",
            Self::Suspect => "suspect",
        }
    }

    /// True if the node's grants count.
    pub const fn is_counted(self) -> bool {
        matches!(self, Self::Counted)
    }

    /// True if the node does not reply.
    pub const fn is_away(self) -> bool {
        matches!(self, Self::Stalled | Self::Down)
    }
}

impl fmt::Display for NodeStanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The number of a node's pending releases has changed. The node has not confirmed them, so they are sent again.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReleasesOwed<'a> {
    /// Address of the node, without user and password.
    pub node: &'a str,
    /// Number of pending releases; 0 after all were confirmed or their keys have expired.
    pub owed: usize,
    /// Number before the change.
    pub before: usize,
}

/// A connection to a node was established and set up. A client has one per node for each runtime that uses it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ConnectionOpened<'a> {
    /// Address of the node, without user and password.
    pub node: &'a str,
    /// False if the server does not permit `TIME`. Then this client cannot detect steps of the server's clock.
    pub reads_clock: bool,
    /// Number of this client's connections to the node.
    pub connections: usize,
}

/// A connection was closed. One event for each [`ConnectionOpened`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ConnectionClosed<'a> {
    /// Address of the node, without user and password.
    pub node: &'a str,
    /// The reason; `None` if the client was closed or dropped.
    pub reason: Option<&'a NodeFailure>,
    /// Number of this client's connections to the node.
    pub connections: usize,
}

/// A connection could not be established. Connecting is retried, with one event for each failure.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ConnectFailed<'a> {
    /// Address of the node, without user and password.
    pub node: &'a str,
    /// The reason.
    pub reason: &'a NodeFailure,
}

/// A node has replied to a command, or will not, because the command was not sent or the connection broke. One event
/// for each command that acquires, extends or releases. This includes replies after the decision, and each retry.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NodeAnswered<'a> {
    /// Address of the node, without user and password.
    pub node: &'a str,
    /// Kind of the command.
    pub asked: Asked,
    /// Reply of the node. It is a vote, if the round still counts votes.
    pub answer: NodeAnswer<'a>,
    /// Time from writing the command to reading its reply; `None` without a reply.
    pub round_trip: Option<Duration>,
}

/// Kind of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Asked {
    /// Acquire or adopt a lock, or confirm its fencing token.
    Acquire,
    /// Extend a lock.
    Extend,
    /// Release a lock.
    Release,
}

impl Asked {
    #[cfg(feature = "metrics")]
    pub(super) const ALL: [Self; 3] = [Self::Acquire, Self::Extend, Self::Release];

    /// The kind in snake case, used as a metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Extend => "extend",
            Self::Release => "release",
        }
    }
}

/// Reply of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeAnswer<'a> {
    /// The node executed the command.
    Granted,
    /// The key holds another value, or another type than a string.
    Held,
    /// The key does not exist (extend and release only).
    Missing,
    /// The vote does not count, for this reason.
    Failed(&'a NodeFailure),
}

impl NodeAnswer<'_> {
    /// The reply in snake case, used as a metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Held => "held",
            Self::Missing => "missing",
            Self::Failed(_) => "failed",
        }
    }
}
