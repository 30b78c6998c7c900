//! Whether the node behind a connection is alive, and what to do while it is silent.
//!
//! A failure detector by timeout, for one connection. A node that leaves a command unanswered for longer
//! than the node timeout is *stalled*: no commands are written to it until it replies. If the silence continues, the
//! connection is abandoned. If a quorum is silent, the cause is the network or this process: a second connection
//! is then made early, beside the first. A connection without traffic gets a heartbeat.
//!
//! Report the traffic of the connection: [`handle_written`](Liveness::handle_written) for each pipeline,
//! [`handle_reply`](Liveness::handle_reply) for each reply, which returns whether a stalled node is back.
//!
//! Set an alarm to [`next_timeout`](Liveness::next_timeout), which changes with every report. When it fires, call
//! [`handle_timeout`](Liveness::handle_timeout) with the time that it was set to. A late alarm means that this process
//! was stopped or starved: replies that it did not read then are not the node's silence. Then call
//! [`poll`](Liveness::poll) until it returns `None`.
//!
//! Before a node counts as stalled, [`poll`](Liveness::poll) returns
//! [`Yield`](Action::Yield): there may be tens of thousands of ready tasks, and the one that reads the
//! socket had no turn yet. Yield, report how long that took with
//! [`handle_yielded`](Liveness::handle_yielded), read the replies that have arrived, and only then poll
//! again. If the yield takes long, this process is slow and not the node.

use super::validity::Time;
use std::time::Duration;

/// Interval of heartbeats on a connection without traffic. They detect a dead connection before it is needed,
/// and a step of the node's clock.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(5);

/// How much earlier a heartbeat is sent if another connection of the client needs a turn: they share it.
const HEARTBEAT_SLACK: Duration = Duration::from_millis(100);

/// A node that leaves a command unanswered for this many node timeouts, but at least
/// [`MIN_PATIENCE`], gets a new connection.
const PATIENCE: u32 = 10;
const MIN_PATIENCE: Duration = Duration::from_secs(1);

/// If a quorum is silent, a second connection is made beside the first after this many node timeouts, but at least
/// [`MIN_SECOND_DELAY`].
const SECOND_DELAY: u32 = 3;
const MIN_SECOND_DELAY: Duration = Duration::from_millis(150);

/// An alarm that is late by more than this part of the node timeout was delayed by a pause of the process.
const LATE_DIVISOR: u32 = 2;

/// If a yield takes longer than this part of the node timeout, other tasks kept this process from reading.
const SLOW_DIVISOR: u32 = 8;

/// State of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Liveness {
    /// The node timeout.
    timeout: Duration,
    /// When the oldest unanswered pipeline was written.
    oldest: Option<Time>,
    last_traffic: Time,
    /// When the latest pause of this process ended.
    awake_since: Time,
    suspicion: Suspicion,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suspicion {
    None,
    /// A reply is overdue. Other tasks get a turn first, because one of them may read it.
    Yielded,
    Stalled,
    /// A second connection was made, or there was no reason for one.
    SecondTried,
}

/// An action that a connection needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Write a heartbeat: any command that has a reply.
    Heartbeat,
    /// Yield, then read the replies that have arrived.
    Yield,
    /// Stop writing. The unanswered commands may still run at any time.
    Stall,
    /// Make a second connection beside this one.
    MakeSecond,
    /// Replace this connection, which was silent for this long.
    Abandon(Duration),
}

impl Liveness {
    /// How long a node may be silent before its connection is abandoned.
    pub(crate) fn patience(timeout: Duration) -> Duration {
        timeout.saturating_mul(PATIENCE).max(MIN_PATIENCE)
    }

    /// How long a node may be silent before a second connection is made, if a quorum is silent.
    fn second_delay(timeout: Duration) -> Duration {
        timeout.saturating_mul(SECOND_DELAY).max(MIN_SECOND_DELAY).min(Self::patience(timeout))
    }

    /// A connection that was set up at `now`. `timeout` is the node timeout.
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

    /// The oldest pipeline was answered; `next` is when the next unanswered one was written. Returns true if the node
    /// was stalled and is back: its other replies are not overdue.
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

    /// An alarm fires that was set to `due`.
    pub(crate) fn handle_timeout(&mut self, due: Time, now: Time) {
        if now.since(due) > self.timeout / LATE_DIVISOR {
            // Replies may be waiting to be read.
            self.awake_since = now;
        }
    }

    /// A [yield](Action::Yield) took this long.
    pub(crate) fn handle_yielded(&mut self, took: Duration, now: Time) {
        if took > self.timeout / SLOW_DIVISOR {
            self.awake_since = now;
            self.suspicion = Suspicion::None;
        }
    }

    /// The connection had more bytes than one turn of the driver reads: it is this process that is slow.
    pub(crate) fn handle_backlog(&mut self, now: Time) {
        if !self.is_stalled() {
            self.awake_since = now;
            self.suspicion = Suspicion::None;
        }
    }

    /// The action that is due at `now`. Each is returned once, except [`Action::Abandon`].
    /// `is_quorum_silent` is true if a quorum of nodes is stalled.
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

    /// When to call [`poll`](Self::poll) if no event happens before.
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

    /// True while a reply has been overdue for longer than the node timeout.
    pub(crate) fn is_stalled(&self) -> bool {
        matches!(self.suspicion, Suspicion::Stalled | Suspicion::SecondTried)
    }

    /// How long the oldest pipeline has been unanswered; zero if there is none.
    pub(crate) fn silence(&self, now: Time) -> Duration {
        self.oldest.map_or(Duration::ZERO, |oldest| now.since(oldest))
    }
}

#[cfg(test)]
#[path = "liveness_tests.rs"]
mod tests;
