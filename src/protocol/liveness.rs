//! Whether the node behind a connection is alive, and what to do while it is silent.
//!
//! A failure detector by timeout, for one connection. A node that leaves a command unanswered for longer
//! than the node timeout is *stalled*: nothing is written to it until it answers. If it goes on, the
//! connection is given up; and where a quorum is silent it is the network, or we, and a second connection
//! is tried early beside the first. A connection without traffic is tried now and then.
//!
//! Report what happens on the connection: [`handle_written`](Liveness::handle_written) for each pipeline,
//! [`handle_reply`](Liveness::handle_reply) for each answer, which tells whether the node is back.
//!
//! Set an alarm to [`next_timeout`](Liveness::next_timeout), which moves with every report. When it rings,
//! report that by [`handle_timeout`](Liveness::handle_timeout), with the time that it was set to: an alarm
//! that rings late says that this process was stopped or starved, and what it did not read meanwhile is not
//! the node's silence. Then ask [`poll`](Liveness::poll) what to do, until there is nothing.
//!
//! One answer is not like the others. Before a node is called stalled, [`poll`](Liveness::poll) says to
//! [let others run](Action::LetOthersRun): tens of thousands of tasks may run, and the one that reads the
//! socket did not get to it. Yield, report how long that took by
//! [`handle_others_ran`](Liveness::handle_others_ran), read what has come meanwhile, and only then poll
//! again. While that takes long, it is we who are slow.

use super::validity::Time;
use std::time::Duration;

/// A connection without traffic is tried this often, so that one that died in silence is replaced
/// before somebody needs it, and a clock that steps is seen.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(5);

/// A node that leaves a command without an answer this many node timeouts, but at least
/// [`LEAST_PATIENCE`], gets a new connection.
const PATIENCE: u32 = 10;
const LEAST_PATIENCE: Duration = Duration::from_secs(1);

/// Where a quorum is silent, it is the network, or we: after so many node timeouts, but at least
/// [`LEAST_TRUST`], a second connection is tried beside the first.
const TRUST: u32 = 3;
const LEAST_TRUST: Duration = Duration::from_millis(150);

/// An alarm that rings late by more than this part of the node timeout was held up with the process.
const LATE_PART: u32 = 2;

/// Others that run for longer than this part of the node timeout keep us from reading.
const SLOW_PART: u32 = 8;

/// What is known of the node behind one connection.
#[derive(Clone, Debug)]
pub(crate) struct Liveness {
    /// The node timeout.
    timeout: Duration,
    /// When the oldest pipeline was written that is not answered.
    oldest: Option<Time>,
    last_traffic: Time,
    /// Since when this process has been running without a pause.
    awake_since: Time,
    suspicion: Suspicion,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suspicion {
    None,
    /// A reply is overdue, and others were let run who may have it.
    LookingAgain,
    Stalled,
    /// A second connection was tried, or there was no reason for it.
    TriedSecond,
}

/// What is to be done about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Write something that has an answer.
    Beat,
    /// Yield, and read what has come then.
    LetOthersRun,
    /// From now on nothing is written, and what is unanswered may run at any time.
    Stall,
    /// Make another connection, beside this one.
    MakeSecond,
    /// Make another connection instead of this one, which was silent for so long.
    GiveUp(Duration),
}

impl Liveness {
    /// How long a node may be silent before its connection is given up.
    pub(crate) fn patience(timeout: Duration) -> Duration {
        timeout.saturating_mul(PATIENCE).max(LEAST_PATIENCE)
    }

    /// How long it may be before another connection is tried, where a quorum is silent.
    fn trust(timeout: Duration) -> Duration {
        timeout.saturating_mul(TRUST).max(LEAST_TRUST).min(Self::patience(timeout))
    }

    /// A connection that has been set up. `timeout` is the node timeout.
    pub(crate) fn new(timeout: Duration, now: Time) -> Self {
        Self {
            timeout,
            oldest: None,
            last_traffic: now,
            awake_since: now,
            suspicion: Suspicion::None,
        }
    }

    /// A pipeline was written.
    pub(crate) fn handle_written(&mut self, now: Time) {
        self.oldest.get_or_insert(now);
        self.last_traffic = now;
    }

    /// The oldest pipeline was answered. The `next` that is not was written then. True if the node was
    /// stalled, and is back: what it owes now is not overdue.
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

    /// An alarm rings that was set to `due`.
    pub(crate) fn handle_timeout(&mut self, due: Time, now: Time) {
        if now.since(due) > self.timeout / LATE_PART {
            // Replies may be waiting to be read.
            self.awake_since = now;
        }
    }

    /// Others were [let run](Action::LetOthersRun) for so long.
    pub(crate) fn handle_others_ran(&mut self, took: Duration, now: Time) {
        if took > self.timeout / SLOW_PART {
            self.awake_since = now;
            self.suspicion = Suspicion::None;
        }
    }

    /// What is to be done now; each is said once, but that the connection is to be given up.
    /// `is_quorum_silent` says whether a quorum of nodes is stalled.
    pub(crate) fn poll(&mut self, now: Time, is_quorum_silent: bool) -> Option<Action> {
        let Some(oldest) = self.oldest else {
            let is_idle = now.since(self.last_traffic) >= HEARTBEAT;
            return is_idle.then(|| {
                self.last_traffic = now;
                Action::Beat
            });
        };
        let silence = now.since(oldest.max(self.awake_since));
        let is_overdue = silence >= self.timeout;
        match self.suspicion {
            Suspicion::None if is_overdue => {
                self.suspicion = Suspicion::LookingAgain;
                Some(Action::LetOthersRun)
            }
            _ if silence >= Self::patience(self.timeout) => Some(Action::GiveUp(silence)),
            Suspicion::LookingAgain if is_overdue => {
                self.suspicion = Suspicion::Stalled;
                Some(Action::Stall)
            }
            Suspicion::Stalled if silence >= Self::trust(self.timeout) => {
                self.suspicion = Suspicion::TriedSecond;
                is_quorum_silent.then_some(Action::MakeSecond)
            }
            _ => None,
        }
    }

    /// When to look though nothing happens.
    pub(crate) fn next_timeout(&self) -> Time {
        let silence = match self.suspicion {
            Suspicion::None | Suspicion::LookingAgain => self.timeout,
            Suspicion::Stalled => Self::trust(self.timeout),
            Suspicion::TriedSecond => Self::patience(self.timeout),
        };
        match self.oldest {
            Some(oldest) => oldest.max(self.awake_since).after(silence),
            None => self.last_traffic.after(HEARTBEAT),
        }
    }

    /// True while the node owes an answer for longer than the node timeout.
    pub(crate) fn is_stalled(&self) -> bool {
        matches!(self.suspicion, Suspicion::Stalled | Suspicion::TriedSecond)
    }

    /// How long the oldest pipeline has been without an answer; zero if there is none.
    pub(crate) fn silence(&self, now: Time) -> Duration {
        self.oldest.map_or(Duration::ZERO, |oldest| now.since(oldest))
    }
}

#[cfg(test)]
#[path = "liveness_tests.rs"]
mod tests;
