//! The state of a lock.

use crate::exit::Code;
use quorlock::{LockState, NodeStatus, Status};
use serde::Serialize;

/// The state of the lock, computed from the nodes' replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Free,
    Held,
    Unknown,
}

impl Verdict {
    /// The lock is free if a majority of the nodes reports this. It is held in two cases: a majority reports the same
    /// holder, or there would be no free majority even if the lock were free on all nodes that failed.
    pub(super) fn of(status: &Status) -> Self {
        let count = |is: fn(&LockState) -> bool| {
            status.nodes().iter().filter(|node| is(node.state())).count()
        };
        let free = count(|state| matches!(state, LockState::Free));
        let failed = count(|state| matches!(state, LockState::Failed(_)));
        Self::counted(free, failed, status.needed(), status.is_held())
    }

    fn counted(free: usize, failed: usize, needed: usize, is_held: bool) -> Self {
        if free >= needed {
            Self::Free
        } else if is_held || free + failed < needed {
            Self::Held
        } else {
            Self::Unknown
        }
    }

    pub(super) fn code(self) -> Code {
        match self {
            Self::Free => Code::OK,
            Self::Held => Code::NEGATIVE_RESULT,
            Self::Unknown => Code::NO_QUORUM,
        }
    }
}

/// Returns why the state is unknown.
pub(super) fn unknown_reason(status: &Status) -> &'static str {
    let failed = |node: &&NodeStatus| matches!(node.state(), LockState::Failed(_));
    let nodes = status.nodes();
    let replies = nodes.len() - nodes.iter().filter(failed).count();
    if replies < status.needed() {
        "too few nodes reply"
    } else {
        "neither free nor held on a majority of the nodes"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_unknown_without_a_majority() {
        // The counts of free, failed and needed nodes, and whether one holder has a majority.
        for (counts, verdict) in [
            ((3, 0, 2, false), Verdict::Free),
            ((2, 1, 2, false), Verdict::Free),
            ((1, 0, 2, true), Verdict::Held),
            ((0, 1, 2, true), Verdict::Held),
            ((1, 1, 2, false), Verdict::Unknown),
            ((0, 2, 2, false), Verdict::Unknown),
            ((0, 3, 2, false), Verdict::Unknown),
            // Five nodes, and no holder with a majority.
            ((1, 0, 3, false), Verdict::Held),
            ((1, 1, 3, false), Verdict::Held),
            ((1, 2, 3, false), Verdict::Unknown),
        ] {
            let (free, failed, needed, is_held) = counts;
            assert_eq!(Verdict::counted(free, failed, needed, is_held), verdict, "{counts:?}");
        }
    }
}
