//! [`NodeState`]: whether a node is connected and replies.

use crate::wire::NodeFailure;
use std::fmt;

/// State of a client's connection to one of its nodes.
///
/// Displays as a short phrase, for example `up` or `down: connection refused`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(tag = "state", content = "detail", rename_all = "snake_case"))]
pub enum NodeState {
    /// The client is not connected yet: it has sent no command to the node, or it is establishing
    /// the first connection. This is also the state while the client replaces a connection that
    /// broke.
    Connecting,
    /// The client is connected to the node, and the node is responsive.
    Up,
    /// The client is connected, but the node has not replied to a command for longer than the node
    /// timeout. The client does not request grants from the node until it replies.
    Stalled,
    /// The client is not connected to the node. Contains the reason. The client keeps trying to
    /// reconnect in the background.
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
