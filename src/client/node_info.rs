//! State of a node as the client knows it.

use crate::node::{NodeShared, NodeState, VoteEligibility};

/// Last known state of one node of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct NodeInfo {
    name: String,
    #[cfg_attr(feature = "serde", serde(flatten))]
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

    /// Returns the node's address, without user and password.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the node is connected and replies to commands.
    pub fn state(&self) -> &NodeState {
        &self.state
    }

    /// Returns whether the node has a vote. If it has none, for example because it was restarted or its clock is not
    /// reliable, the result contains the reason and, if known, the time until it has one again.
    pub fn eligibility(&self) -> &VoteEligibility {
        &self.eligibility
    }

    /// Returns the server's version, if the server reports it.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Returns the eviction policy if the server may evict keys to free memory, and `None` otherwise. **Such a server
    /// can delete locks.** Set `maxmemory-policy noeviction` on it.
    pub fn evicting(&self) -> Option<&str> {
        self.evicting.as_deref()
    }
}
