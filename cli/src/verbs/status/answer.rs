//! The result of one request of `status`, for a lock or a semaphore.

use super::verdict::Verdict;
use crate::exit::Code;
use crate::quarantine;
use quorlock::{Holder, LockState, NodeStatus, Status};
use serde::Serialize;
use std::mem::{Discriminant, discriminant};
use std::time::Duration;

pub(super) trait Answer: Serialize {
    /// The data that `--watch` compares. Other changes, such as the remaining TTL, are not printed.
    type Comparable: PartialEq;

    fn state(&self) -> Verdict;

    /// Returns the time until an acquire can succeed, or `None` if the lock is not free on a majority of the nodes.
    fn acquirable_in(&self) -> Option<Duration>;

    fn summary(&self) -> String;

    /// Returns the lines below the summary.
    fn details(&self) -> Vec<String>;

    fn comparable(&self) -> Self::Comparable;

    /// Returns how long the restart guard still prevents an acquire of the free lock, or `None` if it does not.
    fn delay(&self) -> Option<Duration> {
        self.acquirable_in().filter(|wait| !wait.is_zero())
    }

    fn code(&self) -> Code {
        if self.delay().is_some() { Code::NO_QUORUM } else { self.state().code() }
    }

    fn lines(&self) -> String {
        let details = self.details();
        let details = details.iter().map(|line| format!("\n  {line}"));
        format!("{}{}", self.summary(), details.collect::<String>())
    }

    fn line(&self) -> String {
        format!("{}: {}", self.summary(), self.details().join(", "))
    }
}

/// The data that `--watch` compares for each node: the kind of state, the holder's shortened value, and whether the
/// node's vote counts.
pub(super) type NodeState = (Discriminant<LockState>, Option<String>, bool);

pub(super) fn node_states(status: &Status) -> Vec<NodeState> {
    let of_node = |node: &NodeStatus| {
        let counts = node.eligibility().counts_in().is_zero();
        (discriminant(node.state()), node.holder().map(Holder::hint), counts)
    };
    status.nodes().iter().map(of_node).collect()
}

pub(super) fn delayed(wait: Duration) -> String {
    format!("but cannot be acquired for {}", quarantine::seconds(wait))
}
