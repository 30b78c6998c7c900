//! Acquires: their requests, and the stages until a lease is delivered.

use super::claim::Claim;
use super::slots::{LeaseId, RoundId};
use crate::observe::{Report, Tag};
use crate::protocol::{Acquisition, NodeId, Schedule, Time, Ttl};
use crate::wire::{Command, CounterKeys, Keys, Value, Wants};
use std::sync::Arc;
use std::time::Duration;

/// A lock to acquire.
pub(crate) struct AcquireRequest {
    pub(crate) keys: Keys,
    pub(crate) ttl: Ttl,
    pub(crate) metadata: Option<Arc<str>>,
    /// The value to adopt; `None` to acquire a free lock.
    pub(crate) adopts: Option<Arc<Value>>,
    /// The counters beside the keys, for a fencing token.
    pub(crate) counters: Option<Arc<CounterKeys>>,
    /// Delays between attempts.
    pub(crate) schedule: Schedule,
    /// True if there is one attempt only: it requests the holder at once.
    pub(crate) has_one_attempt: bool,
    /// Maximum hold time of a lease with auto-extension.
    pub(crate) max_hold: Option<Duration>,
    /// The resource stays locked for this long after T1, even if the lease is released earlier.
    pub(crate) at_least: Duration,
    /// The end of the wait; `None` for one attempt without a time limit.
    pub(crate) deadline: Option<Time>,
    /// True to fail as soon as the holders' ttls outlast the deadline.
    pub(crate) gives_up_early: bool,
    pub(crate) tag: Tag,
}

#[cfg(test)]
impl AcquireRequest {
    /// A single attempt without options.
    pub(crate) fn once(keys: Keys, ttl: Ttl) -> Self {
        Self {
            keys,
            ttl,
            metadata: None,
            adopts: None,
            counters: None,
            schedule: crate::protocol::RetryPolicy::none().schedule(),
            has_one_attempt: true,
            max_hold: None,
            at_least: Duration::ZERO,
            deadline: None,
            gives_up_early: false,
            tag: Tag::default(),
        }
    }
}

pub(super) struct Acquire {
    pub(super) terms: Terms,
    pub(super) acquisition: Acquisition,
    pub(super) stage: Stage,
    /// When to continue if no event happens before.
    pub(super) timeout: Option<Time>,
    pub(super) begun: Time,
    /// Number of attempts.
    pub(super) attempts: u32,
    /// The round that refused the last attempt.
    pub(super) refused: Option<RoundId>,
    /// True if the next attempt asks all nodes at once.
    pub(super) asks_all: bool,
    /// When the wait began, for its events.
    pub(super) wait_began: Option<Time>,
}

/// The parts of a request that each attempt uses. Cheap to clone.
#[derive(Clone)]
pub(super) struct Terms {
    pub(super) keys: Keys,
    pub(super) ttl: Ttl,
    pub(super) metadata: Option<Arc<str>>,
    pub(super) adopts: Option<Arc<Value>>,
    pub(super) counters: Option<Arc<CounterKeys>>,
    pub(super) has_one_attempt: bool,
    pub(super) max_hold: Option<Duration>,
    pub(super) at_least: Duration,
    pub(super) deadline: Option<Time>,
    pub(super) tag: Tag,
}

pub(super) enum Stage {
    /// Waits for connections: it is not known yet which nodes count.
    Connecting {
        until: Time,
    },
    /// Waits for its turn in a queue.
    Queued,
    /// Lets other clients go first.
    HoldingBack {
        until: Time,
    },
    /// Waits because the maximum number of attempts is under way.
    Blocked {
        until: Time,
        is_queued: bool,
    },
    Attempting(Attempt),
    /// Waits for the next attempt, or for a reason to try earlier.
    Resting {
        until: Time,
    },
    /// The caller has not taken the lease yet.
    Delivered {
        lease: LeaseId,
        since: Time,
    },
    /// The lease was revoked, and the caller was not polled since then.
    Revoked {
        report: Report,
    },
}

/// An attempt under way.
pub(super) struct Attempt {
    pub(super) claim: Arc<Claim>,
    pub(super) t1: Time,
    pub(super) phase: Phase,
    /// The acquire round.
    pub(super) round: RoundId,
    /// The round that confirms the fencing token.
    pub(super) confirmation: Option<RoundId>,
    /// How long to wait for deferred grants to count.
    pub(super) limit: Time,
    /// True if the nodes report the holder.
    pub(super) names_holder: bool,
    /// True if a crowd of attempts was under way when it began: the client reads replies late.
    pub(super) was_crowded: bool,
    /// This client's lease whose value is adopted.
    pub(super) previous: Option<LeaseId>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Only this node has received the command.
    First(NodeId),
    All,
    Confirming,
}

impl Acquire {
    pub(super) fn new(
        request: AcquireRequest,
        acquisition: Acquisition,
        stage: Stage,
        now: Time,
    ) -> Self {
        Self {
            terms: Terms {
                keys: request.keys,
                ttl: request.ttl,
                metadata: request.metadata,
                adopts: request.adopts,
                counters: request.counters,
                has_one_attempt: request.has_one_attempt,
                max_hold: request.max_hold,
                at_least: request.at_least,
                deadline: request.deadline,
                tag: request.tag,
            },
            acquisition,
            stage,
            timeout: None,
            begun: now,
            attempts: 0,
            refused: None,
            asks_all: false,
            wait_began: None,
        }
    }

    pub(super) fn deadline(&self) -> Time {
        self.terms.deadline.unwrap_or(Time::END)
    }

    pub(super) fn is_delivered(&self) -> bool {
        matches!(self.stage, Stage::Delivered { .. } | Stage::Revoked { .. })
    }

    pub(super) fn attempt(&self) -> Option<&Attempt> {
        if let Stage::Attempting(attempt) = &self.stage { Some(attempt) } else { None }
    }

    pub(super) fn attempt_mut(&mut self) -> Option<&mut Attempt> {
        if let Stage::Attempting(attempt) = &mut self.stage { Some(attempt) } else { None }
    }
}

impl Terms {
    /// The command to each node.
    pub(super) fn command(&self, names_holder: bool) -> Command {
        let ttl = self.ttl;
        if let Some(from) = &self.adopts {
            return Command::Adopt { ttl, from: from.clone() };
        }
        // A waiting acquire is notified when the lock is free, and a renewed lease when its key changes. The holder is
        // not requested in a first attempt, because most of these find the lock free.
        let wants = match self.deadline {
            Some(_) if names_holder || self.has_one_attempt => Wants::WatchAndHolder,
            Some(_) => Wants::Watch,
            None if self.max_hold.is_some() => Wants::Watch,
            None => Wants::Nothing,
        };
        Command::Acquire { ttl, wants }
    }
}

impl Attempt {
    /// The round under way.
    pub(super) fn current_round(&self) -> RoundId {
        self.confirmation.unwrap_or(self.round)
    }
}
