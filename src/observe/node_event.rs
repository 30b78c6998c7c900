//! What can happen to a node, as a client sees it.

use crate::wire::NodeFailure;
use std::fmt;
use std::time::Duration;

/// A node stands otherwise than before. Told once for each change, by whichever of the client's connections
/// sees it first; a connection that breaks and is replaced at once is none.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NodeChanged<'a> {
    /// The node's address, without user and password.
    pub node: &'a str,
    /// How it stood.
    pub from: NodeStanding,
    /// How it stands now.
    pub to: NodeStanding,
    /// Why, and for how long if that is known, unless it counts.
    pub reason: Option<&'a NodeFailure>,
    /// For how long it had stood as it did.
    pub after: Duration,
    /// How many nodes count now.
    pub counted: usize,
    /// How many there are.
    pub nodes: usize,
    /// How many are needed: the quorum.
    pub needed: usize,
}

/// How a node stands with a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NodeStanding {
    /// It was not connected to yet.
    #[default]
    Unknown,
    /// It is connected and answers, and what it grants counts.
    Counted,
    /// It has left a command without an answer for longer than the node timeout.
    Stalled,
    /// It is not connected.
    Down,
    /// It is connected, and may have forgotten locks in a restart or a flush: what it grants does not
    /// count for a time; see [`RestartGuard`](crate::RestartGuard).
    Quarantined,
    /// It is connected, and its clock is not to be trusted: see
    /// [`NodeFailure::Suspect`].
    Suspect,
}

impl NodeStanding {
    /// One word in small letters, as a label.
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

    /// True if what it grants counts.
    pub const fn is_counted(self) -> bool {
        matches!(self, Self::Counted)
    }

    /// True if it does not answer.
    pub const fn is_away(self) -> bool {
        matches!(self, Self::Stalled | Self::Down)
    }
}

impl fmt::Display for NodeStanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How many releases a node is owed has changed: it did not take them, and is told again until it does.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReleasesOwed<'a> {
    /// The node's address, without user and password.
    pub node: &'a str,
    /// How many it is owed now; 0 if it has taken them all, or their keys have expired.
    pub owed: usize,
}
