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
    /// How many it was owed before.
    pub before: usize,
}

/// A connection to a node was made, and set up. There is one for each runtime that the client is used on.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ConnectionOpened<'a> {
    /// The node's address, without user and password.
    pub node: &'a str,
    /// How many the client has to this node now.
    pub connections: usize,
}

/// Such a connection has ended. Each that was opened is closed once.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ConnectionClosed<'a> {
    /// The node's address, without user and password.
    pub node: &'a str,
    /// Why; `None` if the client was closed or dropped.
    pub reason: Option<&'a NodeFailure>,
    /// How many the client has to this node now.
    pub connections: usize,
}

/// A connection could not be made. It is tried again; this is told each time.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ConnectFailed<'a> {
    /// The node's address, without user and password.
    pub node: &'a str,
    /// Why.
    pub reason: &'a NodeFailure,
}

/// A node has answered a command, or will not: it could not be asked, or the connection broke. Told for each command to
/// acquire, extend or release, also where the answer comes after the decision, or nobody waits for it; and again when it
/// is repeated.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NodeAnswered<'a> {
    /// The node's address, without user and password.
    pub node: &'a str,
    /// What it was asked for.
    pub asked: Asked,
    /// What it said: its vote, if votes are still counted.
    pub answer: NodeAnswer<'a>,
    /// From when the command was written to when the answer was read; `None` without an answer.
    pub round_trip: Option<Duration>,
}

/// What a node is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Asked {
    /// A lock: by an acquire, or an adoption; or the fencing token that goes with it.
    Acquire,
    /// More time.
    Extend,
    /// That the lock is deleted.
    Release,
}

impl Asked {
    /// Each of them.
    #[cfg(feature = "metrics")]
    pub(super) const ALL: [Self; 3] = [Self::Acquire, Self::Extend, Self::Release];

    /// One word in small letters, as a label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Extend => "extend",
            Self::Release => "release",
        }
    }
}

/// What a node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeAnswer<'a> {
    /// It did what it was asked.
    Granted,
    /// Another value, or something that is no lock of ours, is at the key.
    Held,
    /// There is no such key (extend and release only).
    Missing,
    /// It gave no answer that counts, for this reason.
    Failed(&'a NodeFailure),
}

impl NodeAnswer<'_> {
    /// One word in small letters, as a label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Held => "held",
            Self::Missing => "missing",
            Self::Failed(_) => "failed",
        }
    }
}
