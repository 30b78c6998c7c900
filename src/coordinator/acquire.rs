//! Acquire requests, and the stages of an acquire until its lease is delivered.

use super::claim::Claim;
use super::slots::{LeaseId, RoundId};
use crate::observe::{Report, Tag};
use crate::protocol::{Acquisition, NodeId, Schedule, Time, Ttl};
use crate::wire::{Command, CounterKeys, Keys, Value, Wants};
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct AcquireRequest {
    pub(crate) keys: Keys,
    pub(crate) ttl: Ttl,
    pub(crate) metadata: Option<Arc<str>>,
    /// The value of the existing lock to adopt, or `None` to acquire a free lock.
    pub(crate) adopts: Option<Arc<Value>>,
    /// The keys of the fencing counters, or `None` if the caller requests no fencing token.
    pub(crate) counters: Option<Arc<CounterKeys>>,
    pub(crate) schedule: Schedule,
    /// Whether the acquire makes only one attempt. If the acquire also has a deadline, this attempt requests the
    /// holder.
    pub(crate) has_one_attempt: bool,
    /// The maximum hold time of an auto-extended lease, or `None` for a lease without auto-extension.
    pub(crate) max_hold: Option<Duration>,
    /// The minimum time from T1 for which the resource stays locked, even if the lease is released earlier.
    pub(crate) at_least: Duration,
    /// The end of the wait, or `None` for a single attempt without a time limit.
    pub(crate) deadline: Option<Time>,
    /// Whether the acquire fails as soon as the holders' TTLs outlast the deadline.
    pub(crate) gives_up_early: bool,
    pub(crate) tag: Tag,
}

#[cfg(test)]
impl AcquireRequest {
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
    /// The time at which the acquire continues if no event occurs earlier.
    pub(super) timeout: Option<Time>,
    pub(super) begun: Time,
    pub(super) attempts: u32,
    /// The round of the last refused attempt.
    pub(super) refused: Option<RoundId>,
    /// Whether the next attempt contacts all nodes at once instead of one node first.
    pub(super) asks_all: bool,
    /// The start of the wait, from which wait events compute their duration.
    pub(super) wait_began: Option<Time>,
}

/// The request parameters that every attempt uses. Cheap to clone.
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
    /// Waiting for connections, because the client does not know yet which nodes' votes count.
    Connecting {
        until: Time,
    },
    /// Waiting to become the head of its queue.
    Queued,
    /// Delaying the first attempt so that other clients can acquire the lock.
    HoldingBack {
        until: Time,
    },
    /// Waiting because the maximum number of attempts is under way.
    Blocked {
        until: Time,
        is_queued: bool,
    },
    Attempting(Attempt),
    /// Waiting for the next attempt, or for an event that allows an earlier attempt.
    Resting {
        until: Time,
    },
    /// Delivered to a caller that has not taken the lease yet.
    Delivered {
        lease: LeaseId,
        since: Time,
    },
    /// The lease was revoked before its caller took it. The caller has not been polled since the revocation.
    Revoked {
        report: Report,
    },
}

pub(super) struct Attempt {
    pub(super) claim: Arc<Claim>,
    pub(super) t1: Time,
    pub(super) phase: Phase,
    pub(super) round: RoundId,
    pub(super) confirmation: Option<RoundId>,
    /// The time until which the attempt waits for deferred grants to count.
    pub(super) limit: Time,
    /// Whether the nodes report the lock's holder.
    pub(super) names_holder: bool,
    /// Whether many attempts were already under way at the start of this attempt. Replies are then read late.
    pub(super) was_crowded: bool,
    /// The lease of this client whose value the attempt adopts, if any.
    pub(super) previous: Option<LeaseId>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
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
    pub(super) fn command(&self, names_holder: bool) -> Command {
        let ttl = self.ttl;
        if let Some(from) = &self.adopts {
            return Command::Adopt { ttl, from: from.clone() };
        }
        // A waiting acquire needs a push when the lock becomes free, and an auto-extended lease needs a push when its
        // key changes. First attempts do not request the holder, because most of them find the lock free.
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
    pub(super) fn current_round(&self) -> RoundId {
        self.confirmation.unwrap_or(self.round)
    }
}
