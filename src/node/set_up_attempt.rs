//! One try to set up a connection: how its commands are sent, and how far it has come.

use super::pipe::Pipe;
use super::shared::NodeShared;
use super::timer_clock::TimerClock;
use crate::sync::lock;
use crate::wire::{Conversation, Missing, NodeFailure, Optional, Plan, Progress};
use std::pin::pin;
use std::sync::Mutex;
use std::time::Duration;

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

    /// Waits for `set_up`, which is `attempt`, within `limit`, and records how it ends.
    ///
    /// # Cancel safety
    /// Dropping the future drops `set_up`, and records no end.
    pub(super) async fn watch_set_up<T>(
        &self,
        attempt: &SetUpAttempt,
        limit: Duration,
        set_up: impl Future<Output = Result<T, NodeFailure>>,
    ) -> Result<T, NodeFailure> {
        let (mut set_up, connect_timeout) = (pin!(set_up), self.timings.connect);
        loop {
            let ended = self.timer.timeout(limit, set_up.as_mut()).await;
            let now = self.timer.now();
            let mut progress = lock(&attempt.progress);
            if ended.is_none()
                && attempt.plan.is_one_by_one()
                && progress.may_go_on(connect_timeout, now)
            {
                continue;
            }
            let missing = match ended {
                Some(_) => Missing::Unknown,
                None => progress.missing(connect_timeout, now),
            };
            lock(&self.omissions).handle_end(attempt.plan, missing, now);
            return ended.unwrap_or_else(|| Err(self.connect_timeout(missing)));
        }
    }
}
