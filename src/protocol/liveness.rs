//! Failure detection for one connection: whether the node replies in time, and what to do if it does not.
//!
//! A node that leaves a command unanswered for longer than the node timeout is *stalled*: the client writes no commands
//! to the node until it replies. If the node still does not reply, the client abandons the connection. If a quorum of
//! nodes is stalled, the cause is the network or this process. The client then makes a second connection early,
//! alongside the first. A connection without traffic gets a heartbeat.
//!
//! Report the traffic of the connection: [`handle_written`](Liveness::handle_written) for each pipeline, and
//! [`handle_reply`](Liveness::handle_reply) for each reply. `handle_reply` returns true if a stalled node has
//! recovered.
//!
//! Set an alarm for [`next_timeout`](Liveness::next_timeout), which changes with every report. When the alarm fires,
//! call [`handle_timeout`](Liveness::handle_timeout) with the time for which the alarm was set. A late alarm means that
//! this process was stopped or starved, and could not read replies. The lost time does not count towards the node's
//! timeout. Then call [`poll`](Liveness::poll) until it returns `None`.
//!
//! Before a node is treated as stalled, [`poll`](Liveness::poll) returns [`Yield`](Action::Yield). Tens of thousands of
//! tasks may be ready, and the task that reads the socket may not have run yet. Yield, report the duration with
//! [`handle_yielded`](Liveness::handle_yielded), read the replies that have arrived, and only then poll again. A long
//! yield means that this process is slow, not the node.

use super::validity::Time;
use std::time::Duration;

/// The interval of heartbeats on a connection without traffic. A heartbeat detects a dead connection before a command
/// needs it, and detects steps of the node's clock.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(5);

/// How long before its due time a heartbeat may be sent, so that one wake-up can send the heartbeats of several
/// connections.
const HEARTBEAT_SLACK: Duration = Duration::from_millis(100);

/// If a node does not reply for this many node timeouts, its connection is replaced. The time is at least
/// [`MIN_PATIENCE`].
const PATIENCE: u32 = 10;
const MIN_PATIENCE: Duration = Duration::from_secs(1);

/// If a quorum of nodes is stalled for this many node timeouts, second connections are made. The time is at least
/// [`MIN_SECOND_DELAY`].
const SECOND_DELAY: u32 = 3;
const MIN_SECOND_DELAY: Duration = Duration::from_millis(150);

/// If an alarm is late by more than the node timeout divided by this number, the process was paused.
const LATE_DIVISOR: u32 = 2;

/// If a yield takes longer than the node timeout divided by this number, other tasks kept this process from reading.
const SLOW_DIVISOR: u32 = 8;

#[derive(Clone, Debug)]
pub(crate) struct Liveness {
    timeout: Duration,
    /// When the oldest unanswered pipeline was written.
    oldest: Option<Time>,
    last_traffic: Time,
    /// When the latest pause of this process ended. Earlier silence of the node is ignored.
    awake_since: Time,
    suspicion: Suspicion,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suspicion {
    None,
    /// A reply is overdue, but other tasks must run first, because one of them may read the reply.
    Yielded,
    Stalled,
    /// The time for a second connection has passed. The client made one, or skipped it because fewer than a quorum of
    /// the nodes were stalled.
    SecondTried,
}

/// An action that the connection's driver must take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Write a heartbeat, which is any command with a reply.
    Heartbeat,
    /// Yield, then read the replies that have arrived.
    Yield,
    /// Stop writing. The node may still run the unanswered commands at any time.
    Stall,
    MakeSecond,
    /// Replace this connection, over which the node has not replied for this duration.
    Abandon(Duration),
}

impl Liveness {
    /// Returns how long a node may leave a command unanswered before the connection is abandoned.
    pub(crate) fn patience(timeout: Duration) -> Duration {
        timeout.saturating_mul(PATIENCE).max(MIN_PATIENCE)
    }

    /// Returns how long a node may leave a command unanswered before a second connection is made, if a quorum is
    /// stalled.
    fn second_delay(timeout: Duration) -> Duration {
        timeout.saturating_mul(SECOND_DELAY).max(MIN_SECOND_DELAY).min(Self::patience(timeout))
    }

    /// Creates the state of a connection that was established at `now`. `timeout` is the node timeout.
    pub(crate) fn new(timeout: Duration, now: Time) -> Self {
        Self {
            timeout,
            oldest: None,
            last_traffic: now,
            awake_since: now,
            suspicion: Suspicion::None,
        }
    }

    pub(crate) fn handle_written(&mut self, now: Time) {
        self.oldest.get_or_insert(now);
        self.last_traffic = now;
    }

    /// Records that the oldest pipeline was answered. `next` is the time at which the next unanswered pipeline was
    /// written, or `None` if no other pipeline is unanswered. Returns true if the node was stalled and has recovered. A
    /// stalled node recovers only once no other reply is overdue.
    pub(crate) fn handle_reply(&mut self, next: Option<Time>, now: Time) -> bool {
        self.oldest = next;
        self.last_traffic = now;
        if self.is_stalled() && next.is_some_and(|next| now.since(next) >= self.timeout) {
            return false;
        }
        let was_stalled = self.is_stalled();
        self.suspicion = Suspicion::None;
        was_stalled
    }

    pub(crate) fn handle_timeout(&mut self, due: Time, now: Time) {
        if now.since(due) > self.timeout / LATE_DIVISOR {
            // After a pause of this process, replies may be waiting to be read.
            self.awake_since = now;
        }
    }

    /// Records that a [yield](Action::Yield) lasted for `took`. After a long yield, the node gets a full timeout again,
    /// because other tasks kept this process from reading.
    pub(crate) fn handle_yielded(&mut self, took: Duration, now: Time) {
        if took > self.timeout / SLOW_DIVISOR {
            self.awake_since = now;
            self.suspicion = Suspicion::None;
        }
    }

    /// Records that more bytes had arrived than the driver reads in one turn. Late replies are then the fault of this
    /// process, not of the node, so the node gets a full timeout again. A stalled node stays stalled.
    pub(crate) fn handle_backlog(&mut self, now: Time) {
        if !self.is_stalled() {
            self.awake_since = now;
            self.suspicion = Suspicion::None;
        }
    }

    /// Returns the action that is due at `now`, or `None`. Each action is returned once, except [`Action::Abandon`].
    /// `is_quorum_silent` must be true if a quorum of nodes is stalled.
    pub(crate) fn poll(&mut self, now: Time, is_quorum_silent: bool) -> Option<Action> {
        let Some(oldest) = self.oldest else {
            let is_idle = now.since(self.last_traffic) + HEARTBEAT_SLACK >= HEARTBEAT;
            return is_idle.then(|| {
                self.last_traffic = now;
                Action::Heartbeat
            });
        };
        let silence = now.since(oldest.max(self.awake_since));
        let is_overdue = silence >= self.timeout;
        match self.suspicion {
            Suspicion::None if is_overdue => {
                self.suspicion = Suspicion::Yielded;
                Some(Action::Yield)
            }
            _ if silence >= Self::patience(self.timeout) => Some(Action::Abandon(silence)),
            Suspicion::Yielded if is_overdue => {
                self.suspicion = Suspicion::Stalled;
                Some(Action::Stall)
            }
            Suspicion::Stalled if silence >= Self::second_delay(self.timeout) => {
                self.suspicion = Suspicion::SecondTried;
                is_quorum_silent.then_some(Action::MakeSecond)
            }
            _ => None,
        }
    }

    /// Returns the time at which to call [`poll`](Self::poll), unless the connection has traffic before that time.
    pub(crate) fn next_timeout(&self) -> Time {
        let silence = match self.suspicion {
            Suspicion::None | Suspicion::Yielded => self.timeout,
            Suspicion::Stalled => Self::second_delay(self.timeout),
            Suspicion::SecondTried => Self::patience(self.timeout),
        };
        match self.oldest {
            Some(oldest) => oldest.max(self.awake_since).after(silence),
            None => self.last_traffic.after(HEARTBEAT),
        }
    }

    pub(crate) fn is_stalled(&self) -> bool {
        matches!(self.suspicion, Suspicion::Stalled | Suspicion::SecondTried)
    }

    /// Returns how long the oldest pipeline has been unanswered, or zero if no pipeline is unanswered.
    pub(crate) fn silence(&self, now: Time) -> Duration {
        self.oldest.map_or(Duration::ZERO, |oldest| now.since(oldest))
    }
}

#[cfg(test)]
#[path = "liveness_tests.rs"]
mod tests;
