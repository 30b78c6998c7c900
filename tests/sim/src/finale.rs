//! The last calls of a client, after all faults have ended.

use crate::clock::{Instant, MS, S};
use crate::holder::Reliance;
use crate::mode::Single;
use crate::process::{millis, nanos};
use crate::rule::Rule;
use crate::worker::{Worker, name};
use futures::future::BoxFuture;
use quorlock::CloseError;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(crate) type Ending = BoxFuture<'static, ()>;

impl Worker {
    /// Acquires and releases every resource once, and then waits until pending releases are
    /// delivered. After failovers, also checks that the client uses every node again. Must be
    /// called after all faults have ended.
    pub(crate) fn finish(self, resources: usize, longest_wait: Instant, rest: Instant) -> Ending {
        Box::pin(async move {
            while self.is_quiet && self.planned.load(Ordering::Relaxed) > 0 {
                self.sleep(MS).await;
            }
            let slow = self.shared.lock().network_quality.longest_delay;
            let settled = self.now() + slow + 2 * nanos(self.times.node_timeout);
            // In this mode, nodes close connections until the affected keys have expired.
            let closes = self.shared.lock().single == Some(Single::ClosingCommand);
            for resource in 0..resources {
                let acquire = self.redlock.acquire(name(resource));
                let begun = self.now();
                self.checker.state().met(Rule::Liveness);
                match acquire
                    .wait(Duration::from_nanos(longest_wait))
                    .ttl(millis(self.times.ttl_ms))
                    .await
                {
                    Ok(lease) => {
                        let commits = self.commits(&[resource], &lease, self.times.ttl_ms);
                        let id = self.begin_alone(resource, &lease, commits);
                        drop(Reliance { worker: &self, id });
                        let released = lease.release().await;
                        // A node whose reply is delayed by an earlier packet is considered stalled.
                        if let Err(error) = released
                            && self.now() > settled
                            && !closes
                        {
                            let how = format!("p{}: {error}", self.process);
                            self.checker.state().violated(Rule::Liveness, how);
                        }
                    }
                    Err(error) => {
                        let waited = (self.now() - begun) / MS;
                        let how = format!(
                            "p{} failed to acquire r{resource} within {waited} ms: {error}",
                            self.process
                        );
                        self.checker.state().violated(Rule::Liveness, how);
                    }
                }
            }
            // The client repeats pending releases while broken connections may deliver earlier
            // commands.
            self.sleep(rest).await;
            self.check_rejoined().await;
        })
    }

    /// Closes the client, and checks that it has no pending operations.
    pub(crate) async fn close_for_good(self) {
        let closed = self.close().await;
        self.checker.state().check(Rule::Closes, closed.is_ok(), || {
            format!("p{}: {:?}", self.process, closed.as_ref().err())
        });
        if closed.is_ok() {
            self.check_pending_work();
        }
    }

    pub(crate) async fn close(&self) -> Result<(), CloseError> {
        let bound = nanos(self.times.connect_timeout);
        let closed = self.timed("close", bound, self.redlock.close()).await;
        self.log(format_args!("closed: {closed:?}"));
        self.inspect(&closed);
        closed
    }

    /// Checks that a closed client has no alarms once its tasks have ended. Waits first, because a
    /// task notices the close only after the current connection attempt, or after the pause between
    /// two attempts.
    pub(crate) async fn check_alarms(&self, begun: Instant) {
        let pause = S.max(nanos(self.times.connect_timeout));
        self.sleep(pause + self.slack).await;
        let alarms = self.shared.lock().alarms_of(self.process, self.client);
        if self.was_prompt_since(begun) {
            self.checker.state().check(Rule::NoAlarms, alarms.is_empty(), || {
                format!("p{}: a closed client has alarms in {alarms:?} ms", self.process)
            });
        }
    }

    pub(crate) fn check_pending_work(&self) {
        let pending_work = quorlock_test::pending_work(&self.redlock);
        self.checker.state().check(Rule::NoPendingWork, pending_work.is_empty(), || {
            format!("p{}: {pending_work:?}", self.process)
        });
    }
}
