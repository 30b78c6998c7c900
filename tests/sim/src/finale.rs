//! What every client does once all is healed.

use crate::clock::{Instant, MS, S};
use crate::holder::Relied;
use crate::mode::Single;
use crate::process::{millis, nanos};
use crate::rule::Rule;
use crate::worker::{Worker, name};
use futures::future::BoxFuture;
use quorlock::CloseError;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What the last acquires of a run are given.
pub(crate) type Ending = BoxFuture<'static, ()>;

impl Worker {
    /// Once all is healed: every resource can be had, and after that the client is closed, with nothing left.
    pub(crate) fn finish(self, resources: usize, longest_wait: Instant, rest: Instant) -> Ending {
        Box::pin(async move {
            while self.is_quiet && self.planned.load(Ordering::Relaxed) > 0 {
                self.sleep(MS).await;
            }
            let slow = self.shared.lock().weather.long;
            let settled = self.now() + slow + 2 * nanos(self.times.node_timeout);
            // Such a node closes connections until the keys have expired because of which it does so.
            let closes = self.shared.lock().single == Some(Single::ClosingCommand);
            for resource in 0..resources {
                let acquire = self.redlock.acquire(name(resource));
                let begun = self.now();
                match acquire
                    .wait(Duration::from_nanos(longest_wait))
                    .ttl(millis(self.times.ttl_ms))
                    .await
                {
                    Ok(lease) => {
                        let commits = self.commits(&[resource], &lease, self.times.ttl_ms);
                        let id =
                            self.checker.books().begin(self.process, &[resource], &lease, commits);
                        drop(Relied { worker: &self, id });
                        let released = lease.release().await;
                        // Who waits for a packet that was sent before is taken for hung.
                        if let Err(error) = released
                            && self.now() > settled
                            && !closes
                        {
                            let how = format!("p{}: {error}", self.process);
                            self.checker.books().broken(Rule::Liveness, how);
                        }
                    }
                    Err(error) => {
                        let waited = (self.now() - begun) / MS;
                        let how = format!(
                            "p{} has not got r{resource} after {waited} ms: {error}",
                            self.process
                        );
                        self.checker.books().broken(Rule::Liveness, how);
                    }
                }
            }
            // Releases that were pending without a connection are repeated while broken connections may deliver.
            self.sleep(rest).await;
            self.check_rejoined().await;
        })
    }

    /// Closes the client, which has nothing under way then.
    pub(crate) async fn close_for_good(self) {
        if let Err(error) = self.close().await {
            self.checker.books().broken(Rule::Closes, format!("p{}: {error}", self.process));
        } else {
            self.check_census();
        }
    }

    pub(crate) async fn close(&self) -> Result<(), CloseError> {
        let bound = nanos(self.times.connect_timeout);
        let closed = self.timed("close", bound, self.redlock.close()).await;
        self.say(format_args!("closed: {closed:?}"));
        self.inspect(&closed);
        closed
    }

    /// A client that was closed rings no more, once its tasks have ended: one of them may pause before it asks a
    /// node again, or be connecting, and finds then that nobody wants it.
    pub(crate) async fn check_alarms(&self, begun: Instant) {
        let pause = S.max(nanos(self.times.connect_timeout));
        self.sleep(pause + self.slack).await;
        let alarms = self.shared.lock().alarms_of(self.process, self.client);
        if !alarms.is_empty() && self.was_prompt_since(begun) {
            let how = format!("p{}: a closed client's alarms ring in {alarms:?} ms", self.process);
            self.checker.books().broken(Rule::NoAlarms, how);
        }
    }

    /// Nothing is under way in a client that was closed.
    pub(crate) fn check_census(&self) {
        let pending_work = quorlock_test::pending_work(&self.redlock);
        if !pending_work.is_empty() {
            let how = format!("p{}: {pending_work:?}", self.process);
            self.checker.books().broken(Rule::NoRemains, how);
        }
    }
}
