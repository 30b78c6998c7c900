//! A node as a client sees it.

use crate::node::{NodeShared, NodeState, VoteEligibility};

/// How a client stands with one of its nodes, as last seen.
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

    /// Whether it is connected and answers.
    pub fn state(&self) -> &NodeState {
        &self.state
    }

    /// Whether what it grants counts, or for how long it does not: because it was restarted, or because
    /// its clock is not to be trusted.
    pub fn eligibility(&self) -> &VoteEligibility {
        &self.eligibility
    }

    /// The server's version, if it told.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The eviction policy, if the server may evict keys to save memory: **it can forget locks.**
    /// Set `maxmemory-policy noeviction` there.
    pub fn evicting(&self) -> Option<&str> {
        self.evicting.as_deref()
    }
}
