//! The request, the stage and the current attempt of an acquire.

use super::claim::Claim;
use super::rotation::Rotation;
use super::slots::{LeaseId, RoundId};
use crate::observe::{AcquireTag, Report};
use crate::protocol::{Acquisition, NodeId, Schedule, Time, Ttl};
use crate::wire::{AnyKey, Command, ConflictDetails, CounterKeys, Key, Keys, SharedKeys, Value};
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct AcquireRequest {
    pub(crate) keys: Keys,
    /// If the acquire needs only one of the keys: the name of the queue in which it waits. Acquires of the same keys
    /// share a queue. `None` if the acquire needs all keys.
    pub(crate) any_of: Option<Key>,
    /// If the acquire needs a permit of a semaphore: the number of permits, which equals the number of keys.
    pub(crate) permits: Option<usize>,
    /// For a reader or a writer of a lock that has readers.
    pub(crate) sharing: Option<SharingTerms>,
    pub(crate) ttl: Ttl,
    pub(crate) metadata: Option<Arc<str>>,
    /// The value of an existing lock that the acquire adopts (takes over). `None` to acquire a free lock.
    pub(crate) adopts: Option<Arc<Value>>,
    /// The Redis keys of the fencing counters. `None` if the caller requests no fencing token.
    pub(crate) counters: Option<Arc<CounterKeys>>,
    pub(crate) schedule: Schedule,
    /// Whether the acquire makes only one attempt. If `deadline` is also set, nodes that refuse the attempt also report
    /// the lock's holder.
    pub(crate) has_one_attempt: bool,
    /// The maximum hold time of an auto-extended lease. `None` if the lease is not extended automatically.
    pub(crate) max_hold: Option<Duration>,
    /// The minimum time for which the resource stays locked, even if the lease is released earlier. Measured from the
    /// start of the successful attempt (T1).
    pub(crate) at_least: Duration,
    /// When the acquire stops waiting. `None` for a single attempt without a time limit.
    pub(crate) deadline: Option<Time>,
    /// Whether the acquire fails immediately if a refusal shows that the lock will not expire before the deadline.
    pub(crate) gives_up_early: bool,
    pub(crate) tag: AcquireTag,
}

/// How an acquire uses a lock that has readers.
#[derive(Clone)]
pub(crate) struct SharingTerms {
    pub(crate) keys: Arc<SharedKeys>,
    /// True for a reader, false for a writer.
    pub(crate) is_reader: bool,
}

#[cfg(test)]
impl AcquireRequest {
    pub(crate) fn once(keys: Keys, ttl: Ttl) -> Self {
        Self {
            keys,
            any_of: None,
            permits: None,
            sharing: None,
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
            tag: AcquireTag::default(),
        }
    }
}

pub(super) struct Acquire {
    pub(super) terms: Terms,
    pub(super) acquisition: Acquisition,
    /// The order in which keys are tried, if the acquire needs only one of its keys.
    pub(super) rotation: Option<Box<Rotation>>,
    pub(super) stage: Stage,
    /// When to advance the acquire if no event advances it earlier.
    pub(super) timeout: Option<Time>,
    pub(super) begun: Time,
    pub(super) attempts: u32,
    pub(super) refused: Option<RoundId>,
    /// Whether the next attempt must contact all nodes in parallel. If false, it may contact a single node first.
    pub(super) asks_all: bool,
    /// When the acquire began to wait. `None` if no wait event was emitted.
    pub(super) wait_began: Option<Time>,
}

/// The parameters that all attempts of an acquire share. Cheap to clone.
#[derive(Clone)]
pub(super) struct Terms {
    pub(super) keys: Keys,
    pub(super) any_of: Option<Key>,
    pub(super) permits: Option<usize>,
    pub(super) sharing: Option<SharingTerms>,
    /// For a lock that has readers, if the acquire waits: the claim to its reservation, from its first attempt on.
    pub(super) reservation: Option<Arc<Claim>>,
    pub(super) ttl: Ttl,
    pub(super) metadata: Option<Arc<str>>,
    pub(super) adopts: Option<Arc<Value>>,
    pub(super) counters: Option<Arc<CounterKeys>>,
    pub(super) has_one_attempt: bool,
    pub(super) max_hold: Option<Duration>,
    pub(super) at_least: Duration,
    pub(super) deadline: Option<Time>,
    pub(super) tag: AcquireTag,
}

pub(super) enum Stage {
    /// Waiting for the first connections, without which the client does not know which nodes' votes count.
    Connecting {
        until: Time,
    },
    /// Waiting behind other acquires of this client for the same key, or delaying the first attempt.
    Queued,
    /// Waiting because the client has the maximum number of attempts in progress. The acquire fails at `until`.
    Blocked {
        until: Time,
        is_queued: bool,
    },
    Attempting(Attempt),
    /// Pausing after a refused attempt. The next attempt starts at `until`, or earlier if the lock may have become
    /// free.
    Resting {
        until: Time,
    },
    /// The lock was acquired at `since`, but the caller has not taken the lease yet.
    Delivered {
        lease: LeaseId,
        since: Time,
    },
    /// The lease was revoked before the caller took it. The acquire continues when the caller's future is next polled,
    /// or fails at the deadline.
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
    /// When the attempt stops waiting for deferred grants, which are grants of nodes whose clocks have stepped forward.
    pub(super) limit: Time,
    pub(super) names_holder: bool,
    /// Whether many other attempts were in progress when this attempt started. If so, late replies are not blamed on
    /// the nodes, because the client itself may read replies late.
    pub(super) was_crowded: bool,
    /// The lease of this client that the attempt adopts, if any.
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
        rotation: Option<Box<Rotation>>,
        stage: Stage,
        now: Time,
    ) -> Self {
        Self {
            terms: Terms {
                keys: request.keys,
                any_of: request.any_of,
                permits: request.permits,
                sharing: request.sharing,
                reservation: None,
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
            rotation,
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
    pub(super) fn is_reader(&self) -> bool {
        self.sharing.as_ref().is_some_and(|sharing| sharing.is_reader)
    }

    pub(super) fn command(&self, names_holder: bool, first: Option<usize>) -> Command {
        let ttl = self.ttl;
        if let Some(from) = &self.adopts {
            return Command::Adopt { ttl, from: from.clone() };
        }
        // A waiting acquire needs a push when the lock becomes free, and an auto-extended lease needs a push when its
        // key changes. First attempts do not request the holder, because most of them find the lock free.
        let wants = match self.deadline {
            // The holder's value shows whether it uses another number of permits. If there are several permits, the
            // script always returns this value.
            _ if self.permits == Some(1) => ConflictDetails::WatchAndHolder,
            Some(_) if names_holder || self.has_one_attempt => ConflictDetails::WatchAndHolder,
            Some(_) => ConflictDetails::Watch,
            None if self.max_hold.is_some() => ConflictDetails::Watch,
            None => ConflictDetails::Nothing,
        };
        let any = first.map(|first| AnyKey { first, watches: self.max_hold.is_some() });
        Command::Acquire { ttl, wants, any }
    }

    /// Returns true if a granted acquire leaves this client subscribed to changes of the lease's keys. A script's own
    /// change ends the subscription, unless the script renews it.
    pub(super) fn subscribes(&self) -> bool {
        if self.any_of.is_some() {
            return self.max_hold.is_some();
        }
        let needs_script = self.keys.len() > 1 || self.counters.is_some() || self.sharing.is_some();
        let is_waiting = self.deadline.is_some() || self.max_hold.is_some();
        is_waiting && !needs_script && self.adopts.is_none()
    }
}

impl Attempt {
    pub(super) fn current_round(&self) -> RoundId {
        self.confirmation.unwrap_or(self.round)
    }
}
