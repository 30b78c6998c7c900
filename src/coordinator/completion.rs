//! Results that the coordinator returns to the callers of operations.

use super::shared_lease::SharedLease;
use super::slots::{AcquireId, LeaseId, RoundId};
use super::votes::VoteCounter;
use crate::observe::{Report, VoteEligibility};
use crate::protocol::{Outcome, Refusal, Tenure, Time};
use crate::wire::Answer;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) enum Completion {
    /// An acquired lock. The caller must [take](SharedLease::take) the lease. If the lease cannot be taken, it has
    /// ended or was revoked, and the acquire continues.
    Acquired {
        acquire: AcquireId,
        lease: LeaseId,
        shared: Arc<SharedLease>,
        /// T1 of the attempt that acquired the lock.
        since: Time,
    },
    AcquireFailed {
        acquire: AcquireId,
        failure: AcquireFailure,
    },
    /// The decision on a requested extension. The extension takes effect when the caller calls
    /// [`handle_extended`](super::Coordinator::handle_extended) with the replies, unless the lease has `ended`.
    Extended {
        call: RoundId,
        ended: Option<Tenure>,
        replies: Box<Replies>,
    },
    Released {
        call: RoundId,
        outcome: Outcome,
        replies: Box<Replies>,
    },
    Status {
        call: RoundId,
        nodes: Box<[NodeLock]>,
        report: Report,
    },
    ForceReleased {
        call: RoundId,
        report: Report,
    },
    LeaseEnded {
        lease: LeaseId,
    },
    /// The end of a wait for a connected quorum. A close of the client also ends the wait.
    Ready,
    /// The end of a close. `Err` if some releases were not delivered in time.
    Closed(Result<(), Remains>),
}

#[derive(Debug)]
pub(crate) struct Replies {
    votes: VoteCounter,
    names: Arc<[Arc<str>]>,
}

impl Replies {
    pub(super) fn new(votes: VoteCounter, names: Arc<[Arc<str>]>) -> Self {
        Self { votes, names }
    }

    pub(super) fn votes(&self) -> &VoteCounter {
        &self.votes
    }

    pub(crate) fn report(&self, now: Time) -> Report {
        self.votes.report(&self.names, now)
    }
}

#[derive(Debug)]
pub(crate) enum AcquireFailure {
    /// A refusal, or a timeout. `is_overloaded` is true if no quorum was reached because nodes did not receive their
    /// commands in time.
    Refused {
        refusal: Refusal,
        report: Report,
        is_overloaded: bool,
    },
    /// An acquire that could not start an attempt in time, because the maximum number of attempts was under way.
    Overloaded {
        report: Option<Report>,
    },
    /// A delivered lease that ended or was revoked before the caller took it.
    NotTaken {
        report: Report,
    },
    Closed,
}

/// The state of a lock on one node, as read by a status request.
#[derive(Debug)]
pub(crate) struct NodeLock {
    /// The node's reply, or `None` if the node granted the request or did not reply.
    pub(crate) answer: Option<Answer>,
    pub(crate) eligibility: VoteEligibility,
}

/// The number of pending releases on each node when a close reached its time limit.
#[derive(Clone, Debug)]
pub(crate) struct Remains {
    pub(crate) pending_releases: Box<[usize]>,
}
