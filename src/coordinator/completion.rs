//! Results of operations, for their callers.

use super::shared_lease::SharedLease;
use super::slots::{AcquireId, LeaseId, RoundId};
use super::votes::VoteCounter;
use crate::observe::{Report, VoteEligibility};
use crate::protocol::{Outcome, Refusal, Tenure, Time};
use crate::wire::Answer;
use std::sync::Arc;

/// The result of an operation, or the end of a lease.
#[derive(Debug)]
pub(crate) enum Completion {
    /// The lock is held. The caller must [take](SharedLease::take) the lease. If that fails, the lease was revoked, and
    /// the acquire continues.
    Acquired {
        acquire: AcquireId,
        lease: LeaseId,
        shared: Arc<SharedLease>,
        /// T1 of the acquire.
        since: Time,
    },
    AcquireFailed {
        acquire: AcquireId,
        failure: AcquireFailure,
    },
    /// A requested extension is decided. It takes effect when the caller calls
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
    /// A quorum of nodes is connected.
    Ready,
    /// The client is closed. `Err` if its releases were not delivered in time.
    Closed(Result<(), Remains>),
}

/// The replies in one round.
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

/// Why an acquire has failed.
#[derive(Debug)]
pub(crate) enum AcquireFailure {
    /// `is_overloaded`: there was no quorum because nodes did not receive their commands in time.
    Refused {
        refusal: Refusal,
        report: Report,
        is_overloaded: bool,
    },
    /// The maximum number of attempts was under way.
    Overloaded {
        report: Option<Report>,
    },
    /// The lease was delivered and not taken before it ended or was revoked.
    NotTaken {
        report: Report,
    },
    Closed,
}

/// The lock on one node, as a status request has found it.
#[derive(Debug)]
pub(crate) struct NodeLock {
    /// The reply, unless it is a grant. `None` without a reply.
    pub(crate) answer: Option<Answer>,
    pub(crate) eligibility: VoteEligibility,
}

/// Pending releases of a client whose close has reached its time limit, for each node.
#[derive(Clone, Debug)]
pub(crate) struct Remains {
    pub(crate) pending_releases: Box<[usize]>,
}
