//! Results of operations, which the coordinator reports to the callers.

use super::shared_lease::SharedLease;
use super::slots::{AcquireId, ChangeId, LeaseId, RoundId};
use super::votes::VoteCounter;
use crate::observe::{Report, VoteEligibility};
use crate::protocol::{LeaseStatus, NodeSet, Outcome, PeriodState, Refusal, Time};
use crate::wire::{Answer, PeriodRecord};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub(crate) enum Completion {
    /// The lock was acquired. The caller must [take](SharedLease::take) the lease. If this fails because the lease has
    /// ended or was revoked, the acquire continues.
    Acquired {
        acquire: AcquireId,
        lease: LeaseId,
        shared: Arc<SharedLease>,
        /// When the successful attempt started. The lease's validity is measured from this time.
        since: Time,
    },
    AcquireFailed {
        acquire: AcquireId,
        failure: AcquireFailure,
    },
    /// A requested extension was decided. If `ended` is `Some`, the lease has ended. Otherwise, the caller must pass
    /// `replies` to [`handle_extended`](super::Coordinator::handle_extended), which applies the extension.
    Extended {
        call: RoundId,
        ended: Option<LeaseStatus>,
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
    /// A request for the counter of a scheduled job was decided.
    Period {
        call: RoundId,
        state: PeriodState,
        /// Set if the period is taken.
        taken: Option<TakenPeriod>,
        report: Report,
    },
    ForceReleased {
        call: RoundId,
        report: Report,
    },
    /// The client was closed before a status request, a request for a job's counter or a forced release was decided.
    CutOff {
        call: RoundId,
    },
    /// A key may have changed on a node.
    Changed {
        request: ChangeId,
    },
    LeaseEnded {
        lease: LeaseId,
    },
    /// A quorum of nodes is connected, or the client was closed while the caller waited.
    Ready,
    /// The client was closed. `Err` if some releases were not delivered within the time limit.
    Closed(Result<(), UndeliveredReleases>),
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
    /// The lock was refused, or the time ran out. `is_overloaded` is true if no quorum was reached because this client
    /// was too slow to send commands or to read replies.
    Refused {
        refusal: Refusal,
        report: Report,
        is_overloaded: bool,
    },
    /// The acquire could not start an attempt before its time limit, because the client had the maximum number of
    /// attempts in progress.
    Overloaded {
        report: Option<Report>,
    },
    /// The lock was acquired, but the lease ended or was revoked before the caller took it.
    NotTaken {
        report: Report,
    },
    Closed,
}

/// The state of a lock on one node, as read by a status request.
#[derive(Debug)]
pub(crate) struct NodeLock {
    /// `None` if the node did not reply, or if its reply was a grant.
    pub(crate) answer: Option<Answer>,
    pub(crate) eligibility: VoteEligibility,
}

/// The number of pending releases for each node when a close reached its time limit.
#[derive(Clone, Debug)]
pub(crate) struct UndeliveredReleases {
    pub(crate) pending_releases: Box<[usize]>,
}

/// The numbers of permits of two clients that use the same semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PermitsDifference {
    pub(crate) permits: usize,
    pub(crate) other_permits: usize,
    /// The nodes that reported a holder with the other number.
    pub(crate) nodes: NodeSet,
}

/// The counter that a node reported for a period that is taken.
#[derive(Clone, Debug)]
pub(crate) struct TakenPeriod {
    pub(crate) number: u64,
    /// Remaining TTL of the counter. `None` if the node did not report it.
    pub(crate) remaining: Option<Duration>,
    /// `None` if a client without records has stored the number.
    pub(crate) record: Option<Box<PeriodRecord>>,
}
