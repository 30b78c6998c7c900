//! Attempts, one after the other, until a lease or a refusal.
//!
//! - Commands: [`Acquisition::begin`] starts an attempt and says when its round is to be closed;
//!   [`Acquisition::begin_raise`] starts the second round that a fenced attempt may need.
//! - Events in: [`Acquisition::handle_outcome`] takes how the round ended and says what is next.

use super::fencing::Choice;
use super::quorum::Quorum;
use super::retry::{MIN_DELAY, Schedule, draw};
use super::round::{Goal, Outcome, Round};
use super::validity::{Drift, Time, Ttl, valid_until};
use std::time::Duration;

/// Where a quorum of nodes tells when the lock is let go of, they are asked so seldom whether that was missed: a
/// server may forget what it was to tell, and a key that expires may be told late.
const WATCHED_DELAY: Duration = Duration::from_secs(1);

/// Why there is no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Held by others, on so many nodes that no quorum was left.
    Contended,
    /// Too few nodes answered.
    NoQuorum,
    /// A quorum granted, but its validity was used up when it did.
    Expired,
    /// The wait bound ended before any attempt was decided.
    Timeout,
}

/// What follows an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The lock is held until then; with a fencing token, if that was asked for.
    Lease { valid_until: Time, token: Option<u64> },
    /// The lock is held until then, once a quorum has confirmed this token.
    Raise { valid_until: Time, token: u64 },
    /// Try again at this time, or when there is news.
    Retry { at: Time },
    /// Give up. `latest` tells whether the reason is this attempt's, or an earlier one's (or none).
    Refuse { refusal: Refusal, latest: bool },
}

/// The course of one acquire.
pub(crate) struct Acquisition {
    quorum: Quorum,
    ttl: Ttl,
    drift: Drift,
    node_timeout: Duration,
    deadline: Time,
    schedule: Schedule,
    gives_up_early: bool,
    is_fenced: bool,
    close_at: Time,
    refused: Option<Refusal>,
    /// True if a quorum of nodes was going to tell of changes when the last attempt was refused.
    was_watched: bool,
    /// For how long a lease may be held, whatever extends it.
    most: Option<Duration>,
    /// The pause before the next attempt, where nodes that refuse say that the lock is free.
    pause: Duration,
}

impl Acquisition {
    /// An acquire that has to end by `deadline`, and makes as many attempts as `schedule` allows.
    pub(crate) fn new(
        quorum: Quorum,
        (ttl, drift): (Ttl, Drift),
        node_timeout: Duration,
        deadline: Time,
        schedule: Schedule,
    ) -> Self {
        let close_at = deadline;
        let (gives_up_early, is_fenced, refused) = (false, false, None);
        Self {
            quorum,
            ttl,
            drift,
            node_timeout,
            deadline,
            schedule,
            gives_up_early,
            is_fenced,
            close_at,
            refused,
            was_watched: false,
            pause: MIN_DELAY,
            most: None,
        }
    }

    /// A lease ends when so much has passed, if there is a limit: from then on winning it means nothing.
    pub(crate) fn held_for(self, most: Option<Duration>) -> Self {
        Self { most, ..self }
    }

    /// Gives up as soon as it is clear that the holders' ttls outlast the deadline.
    pub(crate) fn giving_up_early(self, gives_up_early: bool) -> Self {
        Self { gives_up_early, ..self }
    }

    /// Commits a fencing token with each lease: every node that grants says where its counter stands.
    pub(crate) fn fenced(self, is_fenced: bool) -> Self {
        Self { is_fenced, ..self }
    }

    /// Starts an attempt at `t1`, read before its first command is sent (I4). Returns the round and
    /// the time to close it.
    pub(crate) fn begin(&mut self, t1: Time) -> (Round, Time) {
        let valid_until = valid_until(t1, self.ttl, self.drift);
        let valid_until = self.most.map_or(valid_until, |most| valid_until.min(t1.after(most)));
        self.close_at = t1.after(self.node_timeout).min(self.deadline);
        (Round::new(self.quorum, Goal::Acquire { valid_until }), self.close_at)
    }

    /// Starts the round that confirms `token`, at `t1`. Returns it and the time to close it.
    pub(crate) fn begin_raise(&mut self, valid_until: Time, token: u64, t1: Time) -> (Round, Time) {
        self.close_at = t1.after(self.node_timeout).min(self.deadline);
        (Round::new(self.quorum, Goal::Raise { valid_until, token }), self.close_at)
    }

    /// Why there is no lease, if the time for further attempts is over at `now`.
    pub(crate) fn is_over(&self, now: Time) -> Option<Refusal> {
        (now >= self.deadline).then_some(self.refused.unwrap_or(Refusal::Timeout))
    }

    /// True if an attempt may ask one node first: attempts are not counted.
    pub(crate) fn may_ask_one_first(&self) -> bool {
        self.schedule.is_endless()
    }

    /// One node was asked by `now`: others have the lock there until `free_at`, and it tells if that changes
    /// before. When to make the next attempt at the latest, as no other node will tell: within a second, which is
    /// how seldom a quorum is asked that has missed something. `random` is any word.
    pub(crate) fn handle_held(&self, free_at: Time, now: Time, random: u64) -> Time {
        let at = now.after(draw(WATCHED_DELAY / 2, WATCHED_DELAY, random));
        at.min(free_at.max(now.after(MIN_DELAY))).min(self.deadline)
    }

    /// Takes that an attempt was given up before its round was looked at. True if there may be another
    /// by `now`, at once.
    pub(crate) fn handle_given_up(&mut self, now: Time, random: u64) -> bool {
        now < self.deadline && self.schedule.next_delay(random).is_some()
    }

    /// Takes how the attempt's round stands at `now`, after its decision. `random` is any word.
    pub(crate) fn handle_outcome(&mut self, round: &Round, now: Time, random: u64) -> Next {
        let refusal = match (round.outcome(), round.goal()) {
            // The task may have run long after the decision: what is handed out must be valid (I3).
            (Some(Outcome::Won), Goal::Acquire { valid_until }) if now < valid_until => {
                match round.choice() {
                    _ if !self.is_fenced => return Next::Lease { valid_until, token: None },
                    Some(Choice::Committed(token)) => {
                        return Next::Lease { valid_until, token: Some(token) };
                    }
                    Some(Choice::Raise(token)) if now < self.deadline => {
                        return Next::Raise { valid_until, token };
                    }
                    // The future was not polled for long: no time is left for a second round.
                    Some(Choice::Raise(_)) => None,
                    // Too few have said where their counters stand.
                    None => Some(Refusal::NoQuorum),
                }
            }
            (Some(Outcome::Won), Goal::Raise { valid_until, token }) if now < valid_until => {
                return Next::Lease { valid_until, token: Some(token) };
            }
            (Some(Outcome::Won | Outcome::TooLate), _) => Some(Refusal::Expired),
            (Some(Outcome::Denied | Outcome::Missing), _) => Some(Refusal::Contended),
            // Cut short by the caller's deadline: says nothing of the nodes that had not answered.
            (Some(Outcome::NoQuorum) | None, _)
                if self.close_at == self.deadline && !round.blocked_by_failures() =>
            {
                None
            }
            (Some(Outcome::NoQuorum) | None, _) => Some(Refusal::NoQuorum),
        };
        self.refused = refusal.or(self.refused);
        let free_at = round.earliest_free().filter(|_| refusal == Some(Refusal::Contended));
        let is_hopeless = self.gives_up_early && free_at.is_some_and(|at| at >= self.deadline);
        if now < self.deadline
            && !is_hopeless
            && let Some(delay) = self.schedule.next_delay(random)
        {
            let is_watched = refusal == Some(Refusal::Contended) && round.is_watched();
            // The second attempt comes soon all the same: it asks who holds the lock.
            let is_known = std::mem::replace(&mut self.was_watched, is_watched) && is_watched;
            let is_idle = is_known && self.schedule.is_endless();
            let idle = if is_idle { WATCHED_DELAY } else { Duration::ZERO };
            let at = now.after(idle.saturating_add(delay));
            // 1. A SET is refused. 2. The key goes. 3. PTTL says that there is none. 4. Others set it
            // again. So what a node tells of the key is no reason to ask at once, again and again.
            let soonest = now.after(self.pause);
            let is_free = free_at.is_some_and(|free_at| free_at < soonest);
            self.pause = if is_free { self.pause.saturating_mul(2) } else { MIN_DELAY };
            let free_at = free_at.map(|free_at| free_at.max(soonest));
            // Something may happen before: it waits to the end.
            let at = free_at.map_or(at, |free_at| at.min(free_at));
            return Next::Retry { at: at.min(self.deadline) };
        }
        let latest = refusal.is_some() || self.refused.is_none();
        Next::Refuse { refusal: self.refused.unwrap_or(Refusal::Timeout), latest }
    }
}

#[cfg(test)]
#[path = "acquisition_tests.rs"]
mod tests;
