//! State of a node as the client knows it.

use crate::node::{NodeShared, NodeState, VoteEligibility};

/// Last known state of one of a client's nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    name: String,
    state: NodeState,
    eligibility: VoteEligibility,
    version: Option<String>,
    evicting: Option<String>,
}

impl NodeInfo {
    pub(crate) fn of(node: &NodeShared) -> Self {
        let (state, info) = node.status();
        Self {
            name: node.name.to_string(),
            eligibility: node.eligibility(&state),
            state,
            version: info.version.as_deref().map(str::to_owned),
            evicting: info.evicting.as_deref().map(str::to_owned),
        }
    }

    /// The node's address, without user and password.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the node is connected and replies.
    pub fn state(&self) -> &NodeState {
        &self.state
    }

    /// Whether the node has a vote. Otherwise the reason and the duration: the node was restarted, for example, or its
    /// clock is not reliable.
    pub fn eligibility(&self) -> &VoteEligibility {
        &self.eligibility
    }

    /// The server's version, if the server reports it.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The eviction policy, if the server may evict keys to free memory. **Such a server can delete locks.** Set
    /// `maxmemory-policy noeviction` on it.
    pub fn evicting(&self) -> Option<&str> {
        self.evicting.as_deref()
    }
}
