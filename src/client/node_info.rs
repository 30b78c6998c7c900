//! The state of the nodes as the client knows it, and waiting for a quorum of connected nodes.

use super::redlock::Redlock;
use crate::error::ClientError;
use crate::node::Node;
use crate::observe::{NodeState, VoteEligibility};
use crate::wire::ServerInfo;
use std::fmt;

/// The last known state of one node of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct NodeInfo {
    name: String,
    #[cfg_attr(feature = "serde", serde(flatten))]
    state: NodeState,
    eligibility: VoteEligibility,
    version: Option<String>,
}

impl NodeInfo {
    /// Returns the node's address, without credentials.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the state of the connection to the node: whether the node is connected and replies to commands.
    pub fn state(&self) -> &NodeState {
        &self.state
    }

    /// Returns whether the node's grants count towards a quorum. If the grants do not count, the result contains the
    /// reason, such as a restart or an unreliable clock. If known, the result also contains the time until the grants
    /// count again.
    pub fn eligibility(&self) -> &VoteEligibility {
        &self.eligibility
    }

    /// Returns the server's version, if the server reports it.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }
}

/// Writes the address and the state. If the node's grants do not count towards a quorum, also writes the reason, for
/// example `10.0.0.1:6379 up, restarted 3.1s ago, counts again in 57.0s`.
impl fmt::Display for NodeInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.state)?;
        match &self.eligibility {
            VoteEligibility::Counted | VoteEligibility::Unavailable => Ok(()),
            eligibility => write!(f, ", {eligibility}"),
        }
    }
}

impl Redlock {
    fn node_info(&self, node: &Node) -> NodeInfo {
        let known = self.inner.driver.engine().with(|it, now| {
            (it.node_state(node.id), it.eligibility(node.id, now), it.server_info(node.id).clone())
        });
        let unknown =
            || (NodeState::Connecting, VoteEligibility::Unavailable, ServerInfo::default());
        let (state, eligibility, info) = known.unwrap_or_else(unknown);
        NodeInfo {
            name: node.name.to_string(),
            state,
            eligibility,
            version: info.version.as_deref().map(str::to_owned),
        }
    }

    /// Waits until a quorum of nodes is connected. Opens the connections if necessary, on the client's
    /// [runtime](crate::Builder::runtime). Call this when a service starts, so that the first acquire does not wait for
    /// connections:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let nodes = quorlock_test::Nodes::start(3);
    /// # let redlock = nodes.client().build()?;
    /// use std::time::Duration;
    ///
    /// tokio::time::timeout(Duration::from_secs(5), redlock.ready()).await??;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If all connected nodes started recently, this method also waits for the remaining nodes, until each is connected
    /// or its first connection attempt has failed. A node that has been running longer proves that the deployment is
    /// not new; see [`RestartGuard::Observed`](crate::RestartGuard::Observed).
    ///
    /// This method has no time limit and keeps waiting during an outage, so use a timeout as in the example.
    /// [`check`](Self::check) reports whether the nodes' configuration is safe for locks.
    ///
    /// # Errors
    /// Returns a [`ClientError`] if the client is closed, or if no runtime is available.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time. The client continues to connect in the background.
    pub async fn ready(&self) -> Result<(), ClientError> {
        Ok(self.inner.driver.wait_until_ready().await?)
    }

    /// Returns the last known state of each node. Does no I/O.
    pub fn nodes(&self) -> Vec<NodeInfo> {
        let nodes = self.inner.backing.pool.nodes().iter();
        nodes.map(|node| self.node_info(node)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::NodeFailure;
    use std::time::Duration;

    #[test]
    fn node_displays_its_state_and_why_it_does_not_count() {
        let (ago, counts_in) = (Duration::from_secs(3), Duration::from_secs(57));
        let restarted = VoteEligibility::Excluded(NodeFailure::Restarted { ago, counts_in });
        let down = NodeState::Down(NodeFailure::Unreachable("connection refused".into()));
        for (state, eligibility, text) in [
            (NodeState::Up, VoteEligibility::Counted, "a:1 up"),
            (down, VoteEligibility::Unavailable, "a:1 down: connection refused"),
            (NodeState::Up, restarted, "a:1 up, restarted 3.0s ago, counts again in 57.0s"),
        ] {
            let version = None;
            let node = NodeInfo { name: "a:1".to_owned(), state, eligibility, version };
            assert_eq!(node.to_string(), text);
        }
    }
}
