//! Which commands the set-up of a connection contains.
//!
//! A server or proxy may never reply to a command that the client can do without. Replies are matched by their order,
//! so that connection cannot be used, and the next one would end in the same way. After a timeout, the set-up is
//! therefore reduced if the server has replied to a part of a pipeline. A server that is merely unresponsive replies to
//! no part of it, because a pipeline is sent at once.

use super::shared::NodeShared;
use crate::protocol::Time;
use crate::sync::lock;
use crate::wire::{NodeFailure, SetUpScope};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a reduced scope is used for new connections. Then the server may have been replaced.
const REDUCED_FOR: Duration = Duration::from_secs(10 * 60);

/// The scope of a node's next set-up, if it is reduced, and when that ends by the timers' clock.
#[derive(Debug, Default)]
pub(super) struct ReducedSetUp(Mutex<Option<(SetUpScope, Time)>>);

/// One try to set up a connection.
#[derive(Debug)]
pub(super) struct SetUpAttempt {
    pub(super) scope: SetUpScope,
    is_partly_answered: AtomicBool,
}

impl ReducedSetUp {
    pub(super) fn attempt(&self, now: Time) -> Arc<SetUpAttempt> {
        let scope = self.scope(now);
        Arc::new(SetUpAttempt { scope, is_partly_answered: AtomicBool::new(false) })
    }

    fn scope(&self, now: Time) -> SetUpScope {
        let reduced = lock(&self.0).filter(|(_, until)| now < *until);
        reduced.map_or(SetUpScope::Full, |(scope, _)| scope)
    }

    /// Reduces the next set-up after one of `scope` was answered in part. After the last scope, the next one is full:
    /// no optional command was the cause.
    fn reduce(&self, scope: SetUpScope, now: Time) {
        // A task of another runtime may have reduced it already.
        if self.scope(now) == scope {
            let until = now.after(REDUCED_FOR);
            *lock(&self.0) = scope.reduced().map(|reduced| (reduced, until));
        }
    }
}

impl SetUpAttempt {
    /// Records whether the server has replied to some requests of a pipeline, but not to all of them.
    pub(super) fn note_partly_answered(&self, is_partly_answered: bool) {
        self.is_partly_answered.store(is_partly_answered, Ordering::Relaxed);
    }
}

impl NodeShared {
    /// Returns the failure of a connection that was not set up within the connect timeout.
    pub(super) fn handle_connect_timeout(&self, attempt: &SetUpAttempt) -> NodeFailure {
        if !attempt.is_partly_answered.load(Ordering::Relaxed) {
            return self.connect_timeout();
        }
        self.reduced_set_up.reduce(attempt.scope, self.timer.now());
        let why = "timeout while connecting: the server did not reply to all commands";
        NodeFailure::Unreachable(why.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SetUpScope::{Full, Identity, Required};

    #[test]
    fn set_up_is_reduced_step_by_step_and_for_a_limited_time() {
        let start = Time::from_nanos(1 << 60);
        let at = |seconds| start.after(Duration::from_secs(seconds));
        let reduced = ReducedSetUp::default();
        let scope = |seconds| reduced.attempt(at(seconds)).scope;
        assert_eq!(scope(0), Full);
        reduced.reduce(Full, at(1));
        assert_eq!(scope(1), Identity);
        reduced.reduce(Full, at(2));
        assert_eq!((scope(2), scope(600)), (Identity, Identity), "two tasks reduce it once");
        assert_eq!(scope(601), Full);
        reduced.reduce(Full, at(700));
        reduced.reduce(Identity, at(701));
        assert_eq!((scope(1_300), scope(1_301)), (Required, Full));
        reduced.reduce(Required, at(702));
        assert_eq!(scope(703), Full, "no optional command was the cause");
    }
}
