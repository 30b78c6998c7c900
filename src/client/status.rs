//! The status of a lock: its state and holder on each node.

use crate::observe::{HeldBy, Holder, NodeVote, VoteEligibility, debug_as_display};
use crate::wire::{Answer, Conflict, NodeFailure, RemainingTtl, short};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The state of the lock on one resource, as each node reported it at the time of the request.
///
/// `Display` and `Debug` write one line without lock values, for example
/// `held by worker-7 (need 3): a:6379 held by worker-7 (expires in 9.8s), b:6379 free, …`.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Status {
    pub(super) needed: usize,
    pub(super) nodes: Box<[NodeStatus]>,
}

/// One node's entry in a [`Status`]: the state of the lock on this node, and whether the node's vote counts.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct NodeStatus {
    pub(super) name: Arc<str>,
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub(super) state: LockState,
    pub(super) eligibility: VoteEligibility,
    #[cfg_attr(
        feature = "serde",
        serde(rename = "latency_seconds", serialize_with = "crate::wire::seconds")
    )]
    pub(super) latency: Option<Duration>,
    /// Fencing counter of the lock. `None` if the request did not read it.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(super) counter: Option<u64>,
}

/// The state of a lock on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(tag = "state", content = "detail", rename_all = "snake_case"))]
pub enum LockState {
    /// The key does not exist.
    Free,
    /// The lock is held: the key contains a lock value. The field describes the lock's holder.
    Held(Holder),
    /// The key exists, but its value does not belong to a lock of this library. The value is not a string, for example
    /// because another library uses the key, or it is a string of more than 4,200 bytes. The client does not read the
    /// value. No client can acquire the lock on this node.
    Foreign {
        /// Remaining TTL of the key; `None` if the key does not expire.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "ttl_seconds", serialize_with = "crate::wire::seconds")
        )]
        ttl: Option<Duration>,
    },
    /// The state of the lock is unknown, because the node failed or sent an invalid reply. The field contains the
    /// failure.
    Failed(NodeFailure),
}

impl Status {
    /// Returns the entry of each node, in the order in which the nodes were passed to the builder.
    pub fn nodes(&self) -> &[NodeStatus] {
        &self.nodes
    }

    /// Returns the number of nodes that are needed for a quorum.
    pub fn needed(&self) -> usize {
        self.needed
    }

    /// Returns the client that holds the lock on a quorum of nodes, or `None` if no quorum of nodes reported the same
    /// holder. The holder's TTL is the time for which the lock remains on a quorum.
    pub fn holder(&self) -> Option<Holder> {
        let held: Vec<&Holder> = self.nodes.iter().filter_map(NodeStatus::holder).collect();
        held.iter().find_map(|one| {
            let same = held.iter().filter(|other| other.is_same(one));
            let mut ttls: Vec<_> = same.map(|one| one.ttl().unwrap_or(Duration::MAX)).collect();
            ttls.sort_unstable();
            let ttl = *ttls.get(ttls.len().checked_sub(self.needed)?)?;
            let ttl = Some(ttl).filter(|ttl| *ttl < Duration::MAX);
            Some(one.with_ttl(ttl))
        })
    }

    /// Returns the time until an acquire can succeed, provided that the lock stays free on a quorum of nodes. Returns
    /// zero if an acquire can succeed now. A longer time means that too many of the free nodes have no vote yet,
    /// because they were restarted or their clocks deviate. Returns `None` if the lock is not free on a quorum.
    ///
    /// The result is specific to this client. A new client knows of earlier restarts only within the limits that
    /// [`RestartGuard`](crate::RestartGuard) describes.
    pub fn acquirable_in(&self) -> Option<Duration> {
        let free = self.nodes.iter().filter(|node| node.state == LockState::Free);
        let mut waits: Vec<_> = free.map(|node| node.eligibility.counts_in()).collect();
        waits.sort_unstable();
        waits.get(self.needed.checked_sub(1)?).copied()
    }

    /// Returns true if one client holds the lock on a quorum of nodes.
    pub fn is_held(&self) -> bool {
        self.holder().is_some()
    }
}

impl NodeStatus {
    /// Returns the node's address, without credentials.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the state of the lock on this node.
    pub fn state(&self) -> &LockState {
        &self.state
    }

    /// Returns the holder of the lock on this node, or `None` if the node did not report one.
    pub fn holder(&self) -> Option<&Holder> {
        match &self.state {
            LockState::Held(holder) => Some(holder),
            LockState::Free | LockState::Foreign { .. } | LockState::Failed(_) => None,
        }
    }

    /// Returns whether the node's vote counts when this client acquires the lock. If the vote does not count, the
    /// result contains the reason and, if known, the time until it counts again.
    pub fn eligibility(&self) -> &VoteEligibility {
        &self.eligibility
    }

    /// Returns the time from sending the request to receiving the node's reply, or `None` if the node did not reply.
    pub fn latency(&self) -> Option<Duration> {
        self.latency
    }
}

impl LockState {
    pub(super) fn new(vote: &NodeVote, answer: Option<Answer>, max_ttl: Duration) -> Self {
        match (vote, answer) {
            (NodeVote::Failed(failure), _) => Self::Failed(failure.clone()),
            (NodeVote::Missing, _) => Self::Free,
            (_, Some(Answer::Denied(Conflict { value, remaining, .. }))) => {
                let ttl = remaining.and_then(RemainingTtl::duration);
                value.map_or(Self::Foreign { ttl }, |value| {
                    Self::Held(Holder::new(value, ttl).with_max_ttl(max_ttl))
                })
            }
            // Not expected: a node that does not reply within the node timeout has the vote `Failed`.
            _ => Self::Failed(NodeFailure::ShutDown),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.holder() {
            Some(holder) => write!(f, "{}", HeldBy(&holder))?,
            None => write!(f, "not held")?,
        }
        if let Some(wait) = self.acquirable_in().filter(|wait| !wait.is_zero()) {
            write!(f, ", cannot be acquired for {}", short(wait))?;
        }
        write!(f, " (need {}):", self.needed)?;
        for (place, node) in self.nodes.iter().enumerate() {
            write!(f, "{} {node}", if place == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Display for NodeStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expiry = |ttl: &Option<Duration>| {
            ttl.map_or_else(|| "no expiry".to_owned(), |ttl| format!("expires in {}", short(ttl)))
        };
        write!(f, "{} ", self.name)?;
        match &self.state {
            LockState::Free => write!(f, "free"),
            LockState::Held(holder) => {
                write!(f, "{} ({}", HeldBy(holder), expiry(&holder.ttl()))?;
                holder.excess().map_or(Ok(()), |excess| write!(f, ", {excess}"))?;
                f.write_str(")")
            }
            LockState::Foreign { ttl } => write!(f, "not a lock of quorlock ({})", expiry(ttl)),
            LockState::Failed(failure) => return write!(f, "{failure}"),
        }?;
        match &self.eligibility {
            VoteEligibility::RecentStart { .. } | VoteEligibility::Excluded(_) => {
                write!(f, " ({})", self.eligibility)
            }
            _ => Ok(()),
        }
    }
}

debug_as_display!(Status, NodeStatus);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acquirable_in_is_the_wait_for_a_quorum_of_free_nodes() {
        let node = |state: &LockState, eligibility: VoteEligibility| NodeStatus {
            name: "a".into(),
            state: state.clone(),
            eligibility,
            latency: None,
            counter: None,
        };
        let taken = LockState::Foreign { ttl: None };
        let excluded = |seconds| {
            let [ago, counts_in] = [Duration::ZERO, Duration::from_secs(seconds)];
            VoteEligibility::Excluded(NodeFailure::Restarted { ago, counts_in })
        };
        let counted = || node(&LockState::Free, VoteEligibility::Counted);
        let young = |seconds| node(&LockState::Free, excluded(seconds));
        for (nodes, wait) in [
            ([counted(), counted(), young(9)], Some(0)),
            ([counted(), young(9), young(5)], Some(5)),
            ([young(3), young(9), young(5)], Some(5)),
            ([counted(), young(9), node(&taken, VoteEligibility::Counted)], Some(9)),
            ([counted(), node(&taken, excluded(9)), node(&taken, excluded(9))], None),
        ] {
            let status = Status { needed: 2, nodes: nodes.into() };
            assert_eq!(status.acquirable_in(), wait.map(Duration::from_secs), "{status}");
        }
    }
}
