//! One acquire: a sequence of attempts that ends with a lease or a refusal.
//!
//! [`Acquisition::begin`] starts an attempt. [`Acquisition::begin_confirm`] starts the second round that a fenced
//! attempt may need. Both return the round and the time at which the caller must close it. When the round is decided,
//! [`Acquisition::handle_outcome`] returns the next step.

use super::fencing::Choice;
use super::quorum::Quorum;
use super::retry::{MIN_DELAY, Schedule, random_between};
use super::round::{Goal, Outcome, Round};
use super::validity::{Drift, Time, Ttl, valid_until};
use std::time::Duration;

/// How much longer an acquire waits before a retry if a quorum of nodes has promised to push the lock's release. Such a
/// retry is only a safeguard: a server may fail to push, and the push for an expired key may be late.
const WATCHED_DELAY: Duration = Duration::from_secs(1);

/// How often the delay before a retry doubles, if attempts keep failing without a quorum. Retries at a constant rate
/// would keep overloaded nodes overloaded.
const MAX_DOUBLINGS: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A quorum is impossible because other clients hold the lock.
    Contended,
    /// Too few nodes replied.
    NoQuorum,
    /// A quorum granted the lock, but only after the validity had ended.
    Expired,
    /// The maximum wait ended before an attempt completed.
    Timeout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The lock is held until `valid_until`, with a fencing token if one was requested.
    Lease { valid_until: Time, token: Option<u64> },
    /// Start a second round, in which a quorum must confirm `token`. The lock is then held until `valid_until`.
    Confirm { valid_until: Time, token: u64 },
    /// Retry at `at`, or earlier if the lock may have become free.
    Retry { at: Time },
    /// End the acquire with `refusal`. `latest` is false if the refusal is the result of an earlier attempt.
    Refuse { refusal: Refusal, latest: bool },
}

/// The fencing token that the lease needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenKind {
    Nothing,
    Unique,
    /// Other leases may have the same token, because readers share a lock. The token needs no second round: it is not
    /// below any token that was committed before.
    Shared,
}

pub(crate) struct Acquisition {
    quorum: Quorum,
    ttl: Ttl,
    drift: Drift,
    node_timeout: Duration,
    deadline: Time,
    schedule: Schedule,
    gives_up_early: bool,
    token: TokenKind,
    close_at: Time,
    refused: Option<Refusal>,
    /// Whether a quorum of nodes had promised to push changes of the key when the last attempt was refused.
    was_watched: bool,
    max_hold: Option<Duration>,
    /// For an acquire of any one of several keys: when the first of the keys that earlier attempts tried becomes free.
    earlier_free_at: Option<Time>,
    /// The minimum pause before the next attempt. It doubles with each consecutive refusal after which the nodes report
    /// that the lock is already free, or will be free within the pause.
    pause: Duration,
    /// Number of consecutive attempts that failed without a quorum.
    failures: u32,
}

impl Acquisition {
    /// Creates an acquire that ends by `deadline` and makes at most as many attempts as `schedule` allows.
    pub(crate) fn new(
        quorum: Quorum,
        (ttl, drift): (Ttl, Drift),
        node_timeout: Duration,
        deadline: Time,
        schedule: Schedule,
    ) -> Self {
        let close_at = deadline;
        let (gives_up_early, refused) = (false, None);
        Self {
            quorum,
            ttl,
            drift,
            node_timeout,
            deadline,
            schedule,
            gives_up_early,
            token: TokenKind::Nothing,
            close_at,
            refused,
            was_watched: false,
            earlier_free_at: None,
            pause: MIN_DELAY,
            failures: 0,
            max_hold: None,
        }
    }

    /// Limits the validity of the lease to `max_hold`, if given, measured from the start of the attempt. An attempt
    /// that takes longer fails.
    pub(crate) fn with_max_hold(self, max_hold: Option<Duration>) -> Self {
        Self { max_hold, ..self }
    }

    /// Sets whether to refuse the acquire as soon as the holders' ttls show that the lock stays held until the
    /// deadline.
    pub(crate) fn giving_up_early(self, gives_up_early: bool) -> Self {
        Self { gives_up_early, ..self }
    }

    /// Sets whether each lease needs a fencing token. If so, every node that grants the lock also reports its counter.
    pub(crate) fn fenced(self, is_fenced: bool) -> Self {
        let token = if is_fenced { TokenKind::Unique } else { TokenKind::Nothing };
        Self { token, ..self }
    }

    /// Allows other leases to have the same fencing token, if `is_reader` is true.
    pub(crate) fn with_shared_token(self, is_reader: bool) -> Self {
        let is_shared = is_reader && self.token == TokenKind::Unique;
        Self { token: if is_shared { TokenKind::Shared } else { self.token }, ..self }
    }

    /// Starts an attempt. Returns its round and the time at which to close the round. The caller must read `t1` before
    /// it sends the attempt's first command, because the validity is measured from `t1` (I4).
    pub(crate) fn begin(&mut self, t1: Time) -> (Round, Time) {
        let valid_until = valid_until(t1, self.ttl, self.drift);
        let valid_until =
            self.max_hold.map_or(valid_until, |max_hold| valid_until.min(t1.after(max_hold)));
        self.close_at = t1.after(self.node_timeout).min(self.deadline);
        (Round::new(self.quorum, Goal::Acquire { valid_until }), self.close_at)
    }

    /// Starts the round in which a quorum must confirm `token`. Returns the round and the time at which to close it.
    pub(crate) fn begin_confirm(
        &mut self,
        valid_until: Time,
        token: u64,
        t1: Time,
    ) -> (Round, Time) {
        self.close_at = t1.after(self.node_timeout).min(self.deadline);
        (Round::new(self.quorum, Goal::Confirm { valid_until, token }), self.close_at)
    }

    /// Returns the reason to refuse the acquire if the deadline has passed at `now`. Returns `None` if time remains.
    pub(crate) fn is_over(&self, now: Time) -> Option<Refusal> {
        (now >= self.deadline).then_some(self.refused.unwrap_or(Refusal::Timeout))
    }

    /// Returns true if the retry policy has unlimited attempts and no custom delays. An attempt may then be sent to a
    /// single node first, or try only some of several keys.
    pub(crate) fn is_endless(&self) -> bool {
        self.schedule.is_endless()
    }

    /// Handles the refusal of an attempt that was sent to one node only, and returns the latest time for the next
    /// attempt. On this node, another client's key expires at `free_at`, and the node will send a push if the key is
    /// deleted earlier. The delay is at most [`WATCHED_DELAY`], because no other node will push. `random` must be
    /// uniformly distributed.
    pub(crate) fn handle_single_refusal(&self, free_at: Time, now: Time, random: u64) -> Time {
        let at = now.after(random_between(WATCHED_DELAY / 2, WATCHED_DELAY, random));
        at.min(free_at.max(now.after(MIN_DELAY))).min(self.deadline)
    }

    /// Handles an attempt that was abandoned before its round was evaluated. Returns true if another attempt may start
    /// immediately.
    pub(crate) fn handle_abandoned(&mut self, now: Time, random: u64) -> bool {
        now < self.deadline && self.schedule.next_delay(random).is_some()
    }

    /// Handles a refused attempt whose acquire continues at once with other keys, because it needs any one of several.
    pub(crate) fn handle_more_keys(&mut self, round: &Round) {
        self.refused = Some(Refusal::Contended);
        if let Some(at) = round.earliest_free() {
            self.handle_earlier_free_at(at);
        }
    }

    /// Records that a key which the current attempt does not try may be free at `at`.
    pub(crate) fn handle_earlier_free_at(&mut self, at: Time) {
        self.earlier_free_at = Some(self.earlier_free_at.map_or(at, |known| known.min(at)));
    }

    /// Handles the decided round of an attempt and returns the next step. `random` must be uniformly distributed.
    pub(crate) fn handle_outcome(&mut self, round: &Round, now: Time, random: u64) -> Next {
        let refusal = match (round.outcome(), round.goal()) {
            // This can run long after the decision, but a returned lease must be valid (I3).
            (Some(Outcome::Won), Goal::Acquire { valid_until }) if now < valid_until => {
                match round.choice() {
                    _ if self.token == TokenKind::Nothing => {
                        return Next::Lease { valid_until, token: None };
                    }
                    Some(Choice::Confirm(token)) if self.token == TokenKind::Shared => {
                        return Next::Lease { valid_until, token: Some(token) };
                    }
                    Some(Choice::Committed(token)) => {
                        return Next::Lease { valid_until, token: Some(token) };
                    }
                    Some(Choice::Confirm(token)) if now < self.deadline => {
                        return Next::Confirm { valid_until, token };
                    }
                    // The deadline has passed, so no time is left for a second round.
                    Some(Choice::Confirm(_)) => None,
                    // Too few nodes reported their counters.
                    None => Some(Refusal::NoQuorum),
                }
            }
            (Some(Outcome::Won), Goal::Confirm { valid_until, token }) if now < valid_until => {
                return Next::Lease { valid_until, token: Some(token) };
            }
            (Some(Outcome::Won | Outcome::TooLate), _) => Some(Refusal::Expired),
            (Some(Outcome::Denied | Outcome::Missing), _) => Some(Refusal::Contended),
            // The caller's deadline cut the round short. Nodes that have not replied are not at fault.
            (Some(Outcome::NoQuorum) | None, _)
                if self.close_at == self.deadline && !round.blocked_by_failures() =>
            {
                None
            }
            (Some(Outcome::NoQuorum) | None, _) => Some(Refusal::NoQuorum),
        };
        self.refused = refusal.or(self.refused);
        let has_failed = refusal == Some(Refusal::NoQuorum);
        self.failures = if has_failed { self.failures.saturating_add(1) } else { 0 };
        let free_at = self.earlier_free_at.take().into_iter().chain(round.earliest_free()).min();
        let free_at = free_at.filter(|_| refusal == Some(Refusal::Contended));
        let is_hopeless = self.gives_up_early && free_at.is_some_and(|at| at >= self.deadline);
        if now < self.deadline
            && !is_hopeless
            && let Some(delay) = self.next_delay(random)
        {
            let is_watched = refusal == Some(Refusal::Contended) && round.is_watched();
            // The retry after the first refusal gets no additional delay, because the replies to that retry name the
            // holder.
            let is_known = std::mem::replace(&mut self.was_watched, is_watched) && is_watched;
            let is_delayed = is_known && self.schedule.is_endless();
            let delay_if_watched = if is_delayed { WATCHED_DELAY } else { Duration::ZERO };
            let at = now.after(delay_if_watched.saturating_add(delay));
            // 1. A SET is refused. 2. The key is deleted. 3. PTTL reports no key. 4. Another client sets the key again.
            //    A reply that the key is free is therefore no reason to keep retrying at once.
            let soonest = now.after(self.pause);
            let is_free = free_at.is_some_and(|free_at| free_at < soonest);
            self.pause = if is_free { self.pause.saturating_mul(2) } else { MIN_DELAY };
            let free_at = free_at.map(|free_at| free_at.max(soonest));
            // A last attempt at the deadline may still succeed, so the acquire waits for it.
            let at = free_at.map_or(at, |free_at| at.min(free_at));
            return Next::Retry { at: at.min(self.deadline) };
        }
        let latest = refusal.is_some() || self.refused.is_none();
        Next::Refuse { refusal: self.refused.unwrap_or(Refusal::Timeout), latest }
    }

    fn next_delay(&mut self, random: u64) -> Option<Duration> {
        let delay = self.schedule.next_delay(random)?;
        let doublings = self.failures.saturating_sub(1).min(MAX_DOUBLINGS);
        Some(if self.schedule.is_endless() { delay.saturating_mul(1 << doublings) } else { delay })
    }
}

#[cfg(test)]
#[path = "acquisition_tests.rs"]
mod tests;
