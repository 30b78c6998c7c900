//! Events of nodes, as seen by one client.

use crate::wire::NodeFailure;
use std::fmt;
use std::time::Duration;

/// Emitted when the standing of a node has changed, once per change. If the client has several connections to the node,
/// the first connection that detects the change emits the event. A connection that breaks and is re-established at once
/// does not change the standing.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NodeChanged<'a> {
    /// Address of the node, without user and password.
    pub node: &'a str,
    /// Standing before the change.
    pub from: NodeStanding,
    /// Standing after the change.
    pub to: NodeStanding,
    /// Reason why the node's grants do not count towards the quorum, including the time until they count again if that
    /// is known. `None` if the grants count or the node has [stalled](NodeStanding::Stalled).
    pub reason: Option<&'a NodeFailure>,
    /// Duration of the standing before the change; zero if that standing was [`Unknown`](NodeStanding::Unknown).
    pub after: Duration,
    /// Number of nodes whose grants count towards the quorum after the change.
    pub counted: usize,
    /// Total number of nodes.
    pub nodes: usize,
    /// The quorum, that is, the number of grants that a lock needs.
    pub needed: usize,
}

/// State of a node from the viewpoint of one client. Only the grants of a [`Counted`](Self::Counted) node count towards
/// the quorum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NodeStanding {
    /// The client has not connected to the node yet.
    #[default]
    Unknown,
    /// The node is connected and responsive, and its grants count towards the quorum.
    Counted,
    /// The node is unresponsive: it has not replied to a command for longer than the node timeout.
    Stalled,
    /// The client has no connection to the node.
    Down,
    /// The node is connected, but it may have lost earlier locks in a restart or a flush. Its grants do not count for a
    /// limited time; see [`RestartGuard`](crate::RestartGuard).
    Quarantined,
    /// The node is connected, but its grants do not count because its clock is suspect; see [`NodeFailure::Suspect`].
    Suspect,
}

impl NodeStanding {
    /// Returns the name of the standing in snake case. `Display` writes the same name.
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

    /// Returns true if the node's grants count towards the quorum.
    pub const fn is_counted(self) -> bool {
        matches!(self, Self::Counted)
    }

    /// Returns true if the node has stalled or is not connected.
    pub const fn is_away(self) -> bool {
        matches!(self, Self::Stalled | Self::Down)
    }
}

impl fmt::Display for NodeStanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Emitted when the number of pending releases of a node has changed. A release is pending if the node has not
/// confirmed it. The client sends a pending release again until the node confirms it or the lock's key has expired.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReleasesOwed<'a> {
    /// Address of the node, without user and password.
    pub node: &'a str,
    /// Number of pending releases after the change; 0 if the node has confirmed all of them or their keys have expired.
    pub owed: usize,
    /// Number of pending releases before the change.
    pub before: usize,
}

/// Emitted when the client has established a connection to a node and set it up. A client has one connection to each
/// node for each runtime that uses the client.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ConnectionOpened<'a> {
    /// Address of the node, without user and password.
    pub node: &'a str,
    /// False if the server does not permit `TIME`: this client cannot detect steps of the clock of this server.
    pub reads_clock: bool,
    /// Number of this client's connections to the node, including the new one.
    pub connections: usize,
}

/// Emitted when a connection to a node has been closed, once for each [`ConnectionOpened`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ConnectionClosed<'a> {
    /// Address of the node, without user and password.
    pub node: &'a str,
    /// Reason why the connection was closed; `None` if the client was closed or dropped.
    pub reason: Option<&'a NodeFailure>,
    /// Number of this client's remaining connections to the node.
    pub connections: usize,
}

/// Emitted when the client failed to connect to a node, once per failed attempt. The client keeps trying in the
/// background. Not emitted for an attempt to replace the connection to a stalled node.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ConnectFailed<'a> {
    /// Address of the node, without user and password.
    pub node: &'a str,
    /// Reason why the connection could not be established.
    pub reason: &'a NodeFailure,
}

/// Emitted when a command to a node has completed: the node has replied, the command was not sent, or the connection
/// broke. Emitted once for each command that acquires, extends or releases a lock, including retries. Replies that
/// arrive after the operation was decided are also reported.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NodeAnswered<'a> {
    /// Address of the node, without user and password.
    pub node: &'a str,
    /// Kind of the command: acquire, extend or release.
    pub asked: Asked,
    /// Reply of the node, or the reason why there is no valid reply. A reply that arrives after its round was decided
    /// does not change the result.
    pub answer: NodeAnswer<'a>,
    /// Time from writing the command to reading its reply; `None` if the node did not reply.
    pub round_trip: Option<Duration>,
}

/// Kind of command in a [`NodeAnswered`] event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Asked {
    /// A command that acquires or adopts a lock, or confirms its fencing token.
    Acquire,
    /// A command that extends a lock.
    Extend,
    /// A command that releases a lock.
    Release,
}

impl Asked {
    #[cfg(feature = "metrics")]
    pub(super) const ALL: [Self; 3] = [Self::Acquire, Self::Extend, Self::Release];

    /// Returns the name of the kind in snake case. The name is used as a metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Extend => "extend",
            Self::Release => "release",
        }
    }
}

/// A node's reply to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeAnswer<'a> {
    /// The node executed the command.
    Granted,
    /// The node refused the command because the key holds a different value, or a type other than a string.
    Held,
    /// The key does not exist. Nodes send this reply to extensions, releases and adoptions only.
    Missing,
    /// The node's vote does not count. Contains the reason.
    Failed(&'a NodeFailure),
}

impl NodeAnswer<'_> {
    /// Returns the name of the reply in snake case. The name is used as a metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Held => "held",
            Self::Missing => "missing",
            Self::Failed(_) => "failed",
        }
    }
}
