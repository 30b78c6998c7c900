//! One try to set up a connection: how its commands are sent, and how far it has come.

use super::omissions::{Missing, Plan, Progress};
use super::pipe::Pipe;
use super::shared::NodeShared;
use super::timer_clock::TimerClock;
use crate::sync::lock;
use crate::wire::{Conversation, NodeFailure, Optional};
use std::sync::Mutex;

pub(super) struct SetUpAttempt {
    pub(super) plan: Plan,
    timer: TimerClock,
    progress: Mutex<Progress>,
}

impl SetUpAttempt {
    pub(super) fn new(plan: Plan, timer: TimerClock) -> Self {
        Self { plan, timer, progress: Mutex::default() }
    }

    /// An exchange begins; with the optional command that it consists of, if it is sent alone.
    pub(super) fn begin(&self, alone: Option<Optional>) {
        lock(&self.progress).handle_begin(alone, self.timer.now());
    }

    /// The stream was polled.
    pub(super) fn handle_polled<T>(&self, pipe: &Pipe, said: &Conversation<T>) {
        let (received, is_partly_answered) = (pipe.received, said.is_partly_answered());
        lock(&self.progress).handle_received(received, is_partly_answered, self.timer.now());
    }

    /// The exchange has ended.
    pub(super) fn handle_answered(&self) {
        lock(&self.progress).handle_answered();
    }
}

impl NodeShared {
    pub(super) fn set_up_attempt(&self) -> SetUpAttempt {
        let plan = lock(&self.omissions).plan(self.timer.now());
        SetUpAttempt::new(plan, self.timer.clone())
    }

    /// Records that `attempt` succeeded or failed within the connect timeout.
    pub(super) fn handle_set_up_end(&self, attempt: &SetUpAttempt) {
        let now = self.timer.now();
        lock(&self.omissions).handle_end(attempt.plan, Missing::Unknown, now);
    }

    /// Records that the connect timeout ended `attempt`, and returns the failure.
    pub(super) fn handle_set_up_timeout(&self, attempt: &SetUpAttempt) -> NodeFailure {
        let now = self.timer.now();
        let missing = lock(&attempt.progress).missing(self.timings.connect, now);
        lock(&self.omissions).handle_end(attempt.plan, missing, now);
        let why = match missing {
            Missing::Unknown => return self.connect_timeout(),
            Missing::Rest => "timeout while connecting: a command has no reply".into(),
            Missing::Of(optional) => format!("timeout while connecting: no reply to {optional}"),
        };
        NodeFailure::Unreachable(why.into())
    }
}
