//! State of the connection to a node.

use crate::wire::NodeFailure;
use std::fmt;

/// State of a client's connection to one of its nodes.
///
/// The `Display` output is a short phrase, for example `up` or `down: connection refused`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(tag = "state", content = "detail", rename_all = "snake_case"))]
pub enum NodeState {
    /// The client is not connected yet: it has sent no command to the node, or it is establishing
    /// the first connection. A node is also in this state while the client replaces a broken
    /// connection.
    Connecting,
    /// The client is connected to the node, and the node is responsive.
    Up,
    /// The client is connected, but the node did not reply to a command within the node timeout.
    /// The client requests no grants from the node until the node replies.
    Stalled,
    /// The client is not connected to the node, for the given reason. The client tries to reconnect
    /// in the background.
    Down(NodeFailure),
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connecting => f.write_str("connecting"),
            Self::Up => f.write_str("up"),
            Self::Stalled => f.write_str("stalled"),
            Self::Down(failure) => write!(f, "down: {failure}"),
        }
    }
}
