//! Event data about nodes: their health, and the kinds of commands that they receive.

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
    /// The node is unresponsive: it did not reply to a command within the node timeout.
    Stalled,
    /// The client has no connection to the node.
    Down,
    /// The node is connected, but a restart or a flush may have deleted its locks. Its grants do not count for a
    /// limited time; see [`RestartGuard`](crate::RestartGuard).
    Quarantined,
    /// The node is connected, but its clock is suspect, so its grants do not count. See
    /// [`NodeFailure::Suspect`](crate::NodeFailure::Suspect).
    Suspect,
}

impl NodeHealth {
    /// Returns the name of the variant in snake case, which is also its `Display` output.
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

    /// Returns true if the node is [stalled](Self::Stalled) or [down](Self::Down).
    pub const fn is_unavailable(self) -> bool {
        matches!(self, Self::Stalled | Self::Down)
    }
}

impl fmt::Display for NodeHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Kind of a command that the client sends to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CommandKind {
    /// A command that acquires or adopts a lock, or confirms the lock's fencing token.
    Acquire,
    /// A command that extends a lock.
    Extend,
    /// A command that releases a lock.
    Release,
}

labels!(CommandKind { Acquire: "acquire", Extend: "extend", Release: "release" });
