//! Health of nodes, and commands to nodes.

use super::outcome::labels;
use std::fmt;

/// Health of a node from the viewpoint of one client. Only the grants of a [`Counted`](Self::Counted) node count
/// towards the quorum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NodeHealth {
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
    /// The node is connected, but its grants do not count because its clock is suspect; see
    /// [`NodeFailure::Suspect`](crate::NodeFailure::Suspect).
    Suspect,
}

impl NodeHealth {
    /// Returns the name of the state in snake case. `Display` writes the same name.
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
    pub const fn is_unavailable(self) -> bool {
        matches!(self, Self::Stalled | Self::Down)
    }
}

impl fmt::Display for NodeHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Kind of a command to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CommandKind {
    /// A command that acquires or adopts a lock, or confirms its fencing token.
    Acquire,
    /// A command that extends a lock.
    Extend,
    /// A command that releases a lock.
    Release,
}

labels!(CommandKind { Acquire: "acquire", Extend: "extend", Release: "release" });
